package etcd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestACacheChangesNoAnswer: several stores ask anything of one key, alone or
// together with others. The answer is the law's on a record with its whole
// history, whatever a store has in its cache.
func TestACacheChangesNoAnswer(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)
	stores := []*Store{open(t, client, c.Prefix()), open(t, client, c.Prefix()), open(t, client, c.Prefix())}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	const key = "lawful/key"
	var rec tenure.Record
	var past []tenure.Request // all requests with a new secret
	for step := range 400 {
		st := stores[r.IntN(len(stores))]
		if r.IntN(4) == 0 {
			st.mu.Lock()
			if st.held[key] == nil {
				delete(st.views, key)
			}
			st.mu.Unlock()
		}
		var requests []tenure.Request
		for range 1 + r.IntN(4)*r.IntN(4) {
			req := randomRequest(r, key, past)
			requests = append(requests, req)
			if req.Verb == tenure.Acquire || req.Verb.ByHand() {
				past = append(past, req)
			}
		}
		if r.IntN(3) == 0 {
			beside := claim(fmt.Sprintf("lawful/beside/%d", step), "ann")
			requests = append(requests, beside)
		}
		asked := append([]tenure.Request(nil), requests...)
		answers := st.Apply(t.Context(), requests)
		if !reflect.DeepEqual(asked, requests) {
			t.Fatalf("step %d: the caller's requests were changed", step)
		}
		for i, req := range requests {
			if req.Key != key {
				continue
			}
			a := answers[i]
			if errors.Is(a.Err, store.ErrUnknown) {
				t.Logf("step %d: %v", step, a.Err)
				// It was given up and may still take effect, so the record is
				// unknown.
				return
			}
			next, _, err := tenure.Apply(rec, req, a.Now)
			if fmt.Sprintf("%T", err) != fmt.Sprintf("%T", a.Err) || a.Record.Token != next.Token || a.Record.Grant != next.Grant || a.Record.State != next.State || a.Record.Terms != next.Terms {
				t.Fatalf("step %d, request %d, %s: %v, the law says %v\nanswered %+v\nthe law  %+v", step, i, req.Verb, a.Err, err, a.Record, next)
			}
			var got, want *tenure.NotOwnedError
			if errors.As(a.Err, &got) && errors.As(err, &want) && (got.Why != want.Why || !reflect.DeepEqual(got.Record.History, next.History)) {
				t.Fatalf("step %d, request %d, %s: %v with %d transfers, the law says %v with %d", step, i, req.Verb, got, len(got.Record.History), want, len(next.History))
			}
			if got != nil { // its record belongs to the caller
				clear(got.Record.History)
				clear(got.Record.Guards)
			}
			rec = next
		}
		read, err := stores[r.IntN(len(stores))].Get(t.Context(), key)
		if err != nil {
			continue // a call was given up; the next one tells
		}
		if !reflect.DeepEqual(read.History, rec.History) || !reflect.DeepEqual(read.Guards, rec.Guards) {
			t.Fatalf("step %d: it is read with the history\n%+v\nand the law made\n%+v", step, read.History, rec.History)
		}
	}
	if rec.Terms < 2*tenure.HistoryLen {
		t.Errorf("only %d terms", rec.Terms)
	}
}

// randomRequest makes a new request, or another one about an earlier grant.
func randomRequest(r *rand.Rand, key string, past []tenure.Request) tenure.Request {
	req := claim(key, []string{"ann", "bob", "cy"}[r.IntN(3)])
	req.TTL, req.Guards = time.Hour, []string{"a", "b"}[:r.IntN(3)]
	if len(past) > 0 && r.IntN(3) > 0 {
		old := past[len(past)-1]
		if r.IntN(2) == 0 {
			old = past[max(0, len(past)-1-r.IntN(48))]
		}
		switch r.IntN(5) {
		case 0:
			return old
		case 1:
			return then(tenure.Renew, old)
		case 2:
			return then(tenure.Report, old)
		default:
			return then(tenure.Release, old)
		}
	}
	if r.IntN(4) == 0 {
		req.Verb, req.Actor, req.Note = []tenure.Verb{tenure.Takeover, tenure.Reserve, tenure.Revoke}[r.IntN(3)], "olga", fmt.Sprint("because ", r.IntN(9))
	}
	return req
}

// TestLateCopiesAmongManyCallers: callers of a store share its cache. As long
// as the record remembers a grant, no copy of its request is granted again.
func TestLateCopiesAmongManyCallers(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)
	stores := []*Store{open(t, client, c.Prefix()), open(t, client, c.Prefix())}
	const key = "lawful/callers"
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			var old tenure.Request // granted last
			var term int64
			for round := range 40 {
				st := stores[(n+round/5)%2]
				take := claim(key, "ann")
				a := st.Apply(t.Context(), []tenure.Request{take, claim(fmt.Sprintf("lawful/callers/%d/%d", n, round), "ann")})[0]
				if a.Err == nil {
					old, term = take, a.Record.Terms
				}
				if !errors.Is(a.Err, tenure.ErrHeld) { // or the outcome is unknown
					st.Apply(t.Context(), []tenure.Request{then(tenure.Release, take)})
				}
				if term == 0 {
					continue
				}
				late := one(t.Context(), st, old)
				if late.Err != nil {
					continue
				}
				// Otherwise the grant is forgotten, or its release was given
				// up.
				if late.Record.Terms < term+tenure.HistoryLen && late.Record.Terms != term {
					t.Errorf("the request of term %d was granted again as term %d", term, late.Record.Terms)
				}
				term = 0
				st.Apply(t.Context(), []tenure.Request{then(tenure.Release, old)})
			}
		})
	}
	all.Wait()
}
