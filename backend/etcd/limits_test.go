package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestBatchesFitIntoATransaction: etcd takes 128 operations and 1.5 MiB. A
// transaction within another may have as many operations as the outer one
// leaves over.
func TestBatchesFitIntoATransaction(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)

	t.Run("the longest histories there are", func(t *testing.T) {
		t.Parallel()
		st := open(t, client, c.Prefix()+"long/")
		long := func(n, size int) string { return fmt.Sprintf("%0*d", size, n) }
		const mostTerms = tenure.HistoryLen + 2
		var acts, ends []tenure.Request
		for k := range 40 {
			key := long(k, 512)
			for n := range mostTerms {
				act := tenure.Request{
					Verb: tenure.Takeover, Key: key, Secret: tenure.NewSecret(), TTL: time.Minute,
					Owner: long(n, tenure.MaxName), Instance: long(n+1000, tenure.MaxName), Actor: long(n+2000, tenure.MaxName), Note: long(n, tenure.MaxText),
				}
				for g := range tenure.MaxGuards {
					act.Guards = append(act.Guards, long(g, tenure.MaxText))
				}
				acts = append(acts, act)
			}
			ends = append(ends, then(tenure.Release, acts[len(acts)-1]))
		}
		// So there is a second transaction, which begins with one of the above.
		for k := range 60 {
			acts = append(acts, tenure.Request{
				Verb: tenure.Takeover, Key: fmt.Sprint(k), Secret: tenure.NewSecret(), TTL: time.Minute, Owner: "bob", Actor: "olga", Note: "test",
			})
		}
		// Again if a call was given up: then only the last requests of each key
		// are told that it is done.
		testenv.Eventually(t, "all is done", func() error {
			answers := st.Apply(t.Context(), acts)
			for i, a := range answers {
				if errors.Is(a.Err, rpctypes.ErrDuplicateKey) {
					t.Fatalf("the act on %.20q: %v", acts[i].Key, a.Err)
				}
			}
			for i := mostTerms - 1; i < len(answers); i += mostTerms {
				if answers[i].Err != nil {
					return answers[i].Err
				}
			}
			return nil
		})
		fakeSuccessors(st, ends)
		must(t, st, ends...)
	})

	t.Run("many keys, each handed to one who waits", func(t *testing.T) {
		t.Parallel()
		st := open(t, client, c.Prefix()+"offers/")
		for keys := maxGroups - 1; keys < maxGroups+2; keys++ {
			var takes, ends []tenure.Request
			for n := range keys {
				takes = append(takes, longClaim(fmt.Sprintf("offers/%d/%d", keys, n), "ann"))
				end := then(tenure.Release, takes[n])
				if keys > maxGroups { // an operator's act has one operation more
					end = tenure.Request{Verb: tenure.Revoke, Key: takes[n].Key, Secret: tenure.NewSecret(), Actor: "olga", Note: "test"}
				}
				ends = append(ends, end)
			}
			must(t, st, takes...)
			fakeSuccessors(st, ends)
			must(t, st, ends...)
		}
	})

	t.Run("many TTLs, each with an etcd lease of its own", func(t *testing.T) {
		t.Parallel()
		st := open(t, client, c.Prefix()+"ttls/")
		var takes, ends []tenure.Request
		for n := range maxGroups {
			takes = append(takes, claimFor(fmt.Sprintf("ttls/%d", n), "ann", time.Hour+time.Duration(n)*time.Second))
			ends = append(ends, then(tenure.Release, takes[n]))
		}
		must(t, st, takes...)
		must(t, st, ends...)
	})

	t.Run("long names", func(t *testing.T) {
		t.Parallel()
		st := open(t, client, c.Prefix()+strings.Repeat("long", 1000)+"/")
		var takes, ends []tenure.Request
		for n := range maxGroups {
			takes = append(takes, claim(fmt.Sprintf("names/%0500d", n), "ann"))
			ends = append(ends, then(tenure.Release, takes[n]))
		}
		must(t, st, takes...)
		fakeSuccessors(st, ends)
		must(t, st, ends...)
	})
}

// fakeSuccessors makes a store believe that two others wait for the keys it
// holds.
func fakeSuccessors(st *Store, held []tenure.Request) {
	for _, req := range held {
		st.mu.Lock()
		if m := st.held[req.Key]; m != nil {
			m.next = successors{newIdentity(), newIdentity()}
		}
		st.mu.Unlock()
	}
}
