package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func batch() []check {
	return []check{
		{"renewing many leases: each its own answer, some lost", renewMany},
		{"all verbs in one batch", mixedBatch},
		{"invalid requests spoil nothing beside them", invalidInBatch},
		{"requests on one key are carried out in their order", sameKeyInOrder},
		{"a refusal ends nothing else in the batch", refusalInBatch},
		{"no requests, no answers", emptyBatch},
		{"the requests stay the caller's", requestsAreTheCallers},
	}
}

// renewMany does what a client does at every tick. The batch is larger than any
// store carries out in one step.
func renewMany(t *trial) {
	n := t.many(1000, 300, 300)
	leases := make([]tenure.Request, n)
	for i := range leases {
		leases[i] = acquire(fmt.Sprintf("batch/renew/%04d", i), "ann")
		if i%50 == 40 {
			leases[i] = briefly(leases[i])
		}
	}
	var expired time.Time
	for i, a := range t.apply(t.store, leases...) {
		if i%50 == 40 && errors.Is(a.Err, tenure.ErrNotOwned) {
			continue // a slow store may answer after a brief lease is over
		}
		if a.Err != nil {
			t.Fatalf("acquiring %d keys in one batch: %v", n, a.Err)
		}
		if i%50 == 40 && a.Record.Deadline.After(expired) {
			expired = a.Record.Deadline
		}
	}
	// Every tenth lease is lost, in five different ways.
	lost := map[int]tenure.Why{}
	var ends []tenure.Request
	for i := 0; i < n; i += 10 {
		switch i / 10 % 5 {
		case 0:
			ends, lost[i] = append(ends, release(leases[i])), tenure.WhyReleased
		case 1:
			ends, lost[i] = append(ends, takeover(leases[i].Key)), tenure.WhyTakenOver
		case 2:
			leases[i], lost[i] = stranger(leases[i]), tenure.WhyUnknown
		case 3:
			leases[i].Key, lost[i] = "batch/absent/"+fmt.Sprint(i), tenure.WhyUnknown
		case 4:
			lost[i] = tenure.WhyExpired
		}
	}
	for _, a := range t.apply(t.store, ends...) {
		if a.Err != nil {
			t.Fatalf("ending some leases: %v", a.Err)
		}
	}
	t.pass(expired)
	renewals := make([]tenure.Request, n)
	for i := range leases {
		renewals[i] = renew(leases[i])
	}
	t.rand.Shuffle(n, func(i, j int) { renewals[i], renewals[j] = renewals[j], renewals[i] })
	index := map[string]int{}
	for i, req := range leases {
		index[req.Key] = i
	}
	for i, a := range t.apply(t.store, renewals...) {
		key := renewals[i].Key
		if why, gone := lost[index[key]]; gone {
			t.refused(a, why)
			var refusal *tenure.NotOwnedError
			if errors.As(a.Err, &refusal); refusal.Grant != renewals[i].Secret.Grant() {
				t.Fatalf("answer %d is about another grant than request %d", i, i)
			}
			continue
		}
		if a.Err != nil || a.Record.Key != key || a.Record.Grant != renewals[i].Secret.Grant() {
			t.Fatalf("request %d renews %q, its answer is about %q: %v", i, key, a.Record.Key, a.Err)
		}
		if want := a.Now.Add(long); !a.Record.Deadline.Equal(want) {
			t.Fatalf("%q renewed at %s until %s", key, clockTime(a.Now), clockTime(a.Record.Deadline))
		}
	}
}

func mixedBatch(t *trial) {
	key := func(n int) string { return fmt.Sprintf("batch/mixed/%d", n) }
	var held []tenure.Request
	for n := range 8 {
		held = append(held, acquire(key(n), "ann"))
	}
	t.steps(t.store, held...)
	t.steps(t.store,
		renew(held[0]), report(held[1], "half"), release(held[2]), fail(held[3]),
		takeover(key(4)), reserve(key(5), "bob"), revoke(key(6)), acquire(key(7), "bob"),
		acquire(key(8), "bob"), stranger(renew(held[0])), stranger(release(held[1])),
	)
}

func invalidInBatch(t *trial) {
	bad := acquire("batch/invalid/1", "ann")
	bad.TTL = 0
	noKey := acquire("", "ann")
	dots := acquire("batch/../invalid", "ann")
	noVerb := acquire("batch/invalid/2", "ann")
	noVerb.Verb = "grab"
	good := acquire("batch/invalid/3", "ann")
	answers := t.steps(t.store, bad, noKey, good, dots, noVerb, renew(good))
	for i, invalid := range []bool{true, true, false, true, true, false} {
		if errors.Is(answers[i].Err, fence.ErrInvalid) != invalid {
			t.Fatalf("answer %d: %v", i, answers[i].Err)
		}
	}
	if rec := t.get(t.store, "batch/invalid/1"); !rec.IsZero() {
		t.Fatalf("an invalid request left %+v", rec)
	}
	t.steps(t.store, bad, noKey)
}

func sameKeyInOrder(t *trial) {
	const key = "batch/order"
	for range t.many(10, 2, 3) {
		ann, bob, cleo := acquire(key, "ann"), acquire(key, "bob"), acquire(key, "cleo")
		hand := takeover(key)
		answers := t.steps(t.store,
			ann, ann, bob, acquire(key+"/beside", "ann"), renew(ann), release(ann), renew(ann), bob,
			report(bob, "half"),
			cleo, hand, release(bob), release(hand), cleo, release(cleo), release(cleo),
		)
		for i, ok := range []bool{
			true, true, false, true, true, true, false, true, true, false, true, false, true, true, true, true,
		} {
			if i != 3 && (answers[i].Err == nil) != ok {
				t.Fatalf("answer %d of a batch on one key: %v", i, answers[i].Err)
			}
		}
	}
}

func refusalInBatch(t *trial) {
	other := acquire("batch/refusal/held", "bob")
	t.must(other)
	var requests []tenure.Request
	for n := range 12 {
		requests = append(requests, acquire(fmt.Sprintf("batch/refusal/%d", n), "ann"))
	}
	requests = slices.Insert(requests, 0, acquire(other.Key, "ann"))
	requests = slices.Insert(requests, 6, stranger(release(other)))
	for i, a := range t.steps(t.store, requests...) {
		if refused := i == 0 || i == 6; (a.Err != nil) != refused {
			t.Fatalf("answer %d: %v", i, a.Err)
		}
	}
}

func emptyBatch(t *trial) {
	for _, none := range [][]tenure.Request{nil, {}} {
		if answers := t.store.Apply(t.ctx, none); len(answers) != 0 {
			t.Fatalf("no requests got %d answers", len(answers))
		}
	}
}

// requestsAreTheCallers sends the same requests again, and in two calls at
// once. A client does so if it asks again while its first call hangs. The race
// detector finds stores that change the requests.
func requestsAreTheCallers(t *trial) {
	ann := acquire("batch/own/1", "ann")
	ann.Guards = []string{"two", "one"}
	requests := []tenure.Request{
		ann, acquire("batch/own/2", "ann"), acquire("batch/own/2", "bob"), renew(ann), report(ann, "half"),
		stranger(release(ann)), release(ann),
		{Verb: "juggle", Key: "batch/own/3"},
	}
	before := slices.Clone(requests)
	before[0].Guards = slices.Clone(before[0].Guards)
	for _, calls := range []int{1, 2} {
		var all sync.WaitGroup
		for range calls {
			all.Go(func() { t.store.Apply(t.ctx, requests) })
		}
		all.Wait()
		for i := range requests {
			if !reflect.DeepEqual(requests[i], before[i]) { // printing them would hide the secrets
				t.Fatalf("Apply has changed a request, or its secret, from %+v to %+v", before[i], requests[i])
			}
		}
	}
}
