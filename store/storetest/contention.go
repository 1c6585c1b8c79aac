package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func contention() []check {
	return []check{
		{"law 1: many contenders, one grant a round", manyContenders},
		{checkReclaim, reclaim},
		{"contenders in one batch: one grant", contendersInABatch},
		{"an operator's takeover ends all renewals", takeoverEndsRenewals},
		{checkEverybody, everybodyAtOnce},
	}
}

// These checks are also in RunTimed, because the store's own clock matters in
// them.
const (
	checkReclaim   = "law 4: dozens reclaim an expired lease, one gets it"
	checkEverybody = "laws 1 and 2: everybody at once on one key"
)

// race lets n contenders ask for a key at the same moment, and returns the
// winner.
func (t *trial) race(handles []store.Store, key string, n int) (tenure.Request, tenure.Record) {
	t.Helper()
	requests := make([]tenure.Request, n)
	answers := make([]store.Answer, n)
	for i := range requests {
		requests[i] = acquire(key, fmt.Sprintf("contender %d", i))
	}
	suite.Together(n, func(i int) { answers[i] = t.resolve(handles[i%len(handles)], requests[i]) })
	winner := t.oneGrant(requests, answers)
	return requests[winner], answers[winner].Record
}

// oneGrant judges the answers of contenders for one key, and returns the
// winner. Exactly one must be granted. Every other must learn who holds the
// key.
func (t *trial) oneGrant(requests []tenure.Request, answers []store.Answer) (winner int) {
	t.Helper()
	winner = -1
	for i, a := range answers {
		if a.Err != nil {
			continue
		}
		if winner >= 0 {
			t.Fatalf("two grants in one round: token %d to %s and token %d to %s",
				answers[winner].Record.Token, answers[winner].Record.Owner, a.Record.Token, a.Record.Owner)
		}
		winner = i
	}
	if winner < 0 {
		t.Fatalf("no grant in a round of %d contenders for a free key; one was told: %v", len(answers), answers[0].Err)
	}
	won := answers[winner].Record
	for i, a := range answers {
		var held *tenure.HeldError
		switch {
		case i == winner:
		case !errors.As(a.Err, &held):
			t.Fatalf("a loser was told: %v; want a *tenure.HeldError", a.Err)
		case held.Record.Token != won.Token || held.Record.Grant != won.Grant:
			t.Fatalf("a loser was told that token %d holds the key; token %d does", held.Record.Token, won.Token)
		}
	}
	if won.Grant != requests[winner].Secret.Grant() || won.Owner != requests[winner].Owner {
		t.Fatalf("%s won and got the record of %s", requests[winner].Owner, won.Owner)
	}
	return winner
}

func manyContenders(t *trial) {
	const key = "laws/1/contenders"
	handles := t.handles(5)
	var last fence.Token
	for range t.many(200, 6, 25) {
		mine, won := t.race(handles, key, t.many(50, 12, 20))
		if won.Token <= last {
			t.Fatalf("token %d was granted after %d", won.Token, last)
		}
		last = won.Token
		if a := t.resolve(t.store, release(mine)); a.Err != nil {
			t.Fatalf("the winner's release: %v", a.Err)
		}
	}
}

func reclaim(t *trial) {
	const key = "laws/4/reclaim"
	handles := t.handles(4)
	for range t.many(25, 3, 5) {
		t.must(t.expiring(acquire(key, "ann")))
		t.expire(key)
		before := t.get(t.store, key)
		mine, won := t.race(handles, key, t.many(36, 12, 16))
		switch {
		case won.Cause != tenure.Expired:
			t.Fatalf("an expired lease was reclaimed with cause %q", won.Cause)
		case won.Acquired.Before(before.Deadline):
			t.Fatalf("reclaimed at %s, the deadline was %s", clockTime(won.Acquired), clockTime(before.Deadline))
		case won.Token <= before.Token || won.Terms != before.Terms+1:
			t.Fatalf("reclaimed with token %d in term %d after token %d in term %d",
				won.Token, won.Terms, before.Token, before.Terms)
		}
		t.must(release(mine))
	}
}

func contendersInABatch(t *trial) {
	const key = "contention/batch"
	for range t.many(20, 2, 5) {
		var requests []tenure.Request
		for i := range 20 {
			requests = append(requests, acquire(key, fmt.Sprintf("contender %d", i)))
		}
		granted := -1
		for i, a := range t.steps(t.store, requests...) {
			if a.Err == nil && granted >= 0 {
				t.Fatalf("requests %d and %d of one batch were both granted one key", granted, i)
			}
			if a.Err == nil {
				granted = i
			}
		}
		if granted < 0 {
			t.Fatalf("none of a batch was granted a free key")
		}
		t.must(release(requests[granted]))
	}
}

func takeoverEndsRenewals(t *trial) {
	handles := t.handles(2)
	for n := range t.many(30, 3, 8) {
		key := fmt.Sprintf("contention/takeover/%d", n)
		mine := acquire(key, "ann")
		t.must(mine)
		var over atomic.Bool // the operator has its answer
		began := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for renewed := 0; ; renewed++ {
				after := over.Load()
				a := t.resolve(handles[1], renew(mine))
				if a.Err == nil && after {
					t.Errorf("a renewal sent after the takeover was answered has succeeded")
				}
				if renewed == 3 || (a.Err != nil && renewed < 3) {
					close(began)
				}
				if a.Err != nil || after {
					return
				}
			}
		})
		<-began
		a := t.resolve(handles[0], takeover(key))
		over.Store(true)
		if a.Err != nil {
			t.Errorf("takeover: %v", a.Err)
		}
		all.Wait()
	}
}

// everybodyAtOnce lets clients send all verbs to one key at once. It looks only
// for things that may never happen:
//
//   - a token with two grants, or a secret with two tokens;
//   - a new grant whose token is not above all tokens answered before it was
//     sent;
//   - a renewal that succeeds although a newer grant was answered before it was
//     sent.
func everybodyAtOnce(t *trial) {
	const key = "laws/1/everybody"
	handles := t.handles(4)
	var mu sync.Mutex
	granted := map[fence.Token]fence.Grant{}
	secrets := map[fence.Grant]fence.Token{}
	var newest fence.Token // the highest token whose grant has been answered
	// ask sends a request. It judges a success by the newest token that was
	// known before.
	ask := func(st store.Store, req tenure.Request) bool {
		mu.Lock()
		known := newest
		mu.Unlock()
		a := t.resolve(st, req)
		if a.Err != nil {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		rec := a.Record
		g := req.Secret.Grant()
		switch req.Verb {
		case tenure.Release:
			return true // it may repeat an earlier release, so it says nothing of the present
		case tenure.Renew, tenure.Report, tenure.Checkpoint:
			if rec.Token < known {
				t.Errorf("%s of token %d succeeded, sent after token %d was granted", req.Verb, rec.Token, known)
			}
		default:
			if token, again := secrets[g]; again && token != rec.Token {
				t.Errorf("one secret was granted tokens %d and %d", token, rec.Token)
			} else if !again && rec.Token <= known {
				t.Errorf("%s got token %d, sent after token %d was granted", req.Verb, rec.Token, known)
			}
			if other, taken := granted[rec.Token]; taken && other != g {
				t.Errorf("token %d belongs to two grants", rec.Token)
			}
			granted[rec.Token], secrets[g] = g, rec.Token
			newest = max(newest, rec.Token)
		}
		if rec.Grant != g {
			t.Errorf("%s succeeded and the record is of another grant", req.Verb)
		}
		return true
	}
	suite.Together(t.many(16, 8, 8), func(i int) {
		st := handles[i%len(handles)]
		for n := range t.many(60, 4, 15) {
			mine := acquire(key, fmt.Sprintf("client %d", i))
			if (i+n)%7 == 0 {
				hand := takeover(key)
				ask(st, hand)
				mine.Secret = hand.Secret
			} else if !ask(st, mine) {
				continue
			}
			ask(st, renew(mine))
			ask(st, report(mine, "half"))
			ask(st, release(mine))
		}
	})
	checkHistory(t, t.get(t.store, key))
}
