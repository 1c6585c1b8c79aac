package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/tenure"
)

// TestHintsDoNotPostponeTheEndOfPatience: also while the request waits for a
// store that hangs.
func TestHintsDoNotPostponeTheEndOfPatience(t *testing.T) {
	for _, hints := range []bool{false, true} {
		r := newRig(t)
		r.another("a")
		c := r.acquire("a", 10*time.Second)
		r.answer()
		r.e.Hint(r.now, "a", Watched, nil)
		r.take()
		r.settle()
		for i := range maxInFlight { // the store hangs from now on
			r.acquire(fmt.Sprint("hang", i), Forever)
			r.pass(hungAfter)
		}
		for time.Duration(r.now) < 60*time.Second && c.state != done {
			if hints {
				r.e.Hint(r.now, "a", Changed, nil)
				r.take()
			}
			r.pass(500 * time.Millisecond)
		}
		if c.state != done {
			t.Errorf("hints %t: no reply after %s, its patience was 10s", hints, time.Duration(r.now))
		}
	}
}

// TestARepeatedRenewalDoesNotQueueBehindAcquires: a caller can wait, a lease
// cannot.
func TestARepeatedRenewalDoesNotQueueBehindAcquires(t *testing.T) {
	r := newRig(t)
	r.granted("lease")
	r.pass(20 * time.Second)
	r.wantFlight(tenure.Renew)
	for i := range 15 * maxBatch {
		r.acquire(fmt.Sprint("jobs/", i), Forever)
	}
	r.lose(false) // the renewal; now the backlog goes, a batch per 300 ms
	sent := -1
	for n := range 30 {
		r.pass(300 * time.Millisecond)
		if len(r.flying) == 0 {
			break
		}
		for _, req := range r.flying[0].Requests {
			if req.Verb == tenure.Renew && req.Key == "lease" {
				sent = n
			}
		}
		if sent >= 0 {
			break
		}
		r.answer()
	}
	if sent > 6 {
		t.Errorf("the lost renewal, due again after 1.25 s, was sent in batch %d, %s later", sent, time.Duration(r.now)-20*time.Second)
	}
}

// TestRenewalsDoNotQueueBehindCopies: of acquires whose answers were lost.
func TestRenewalsDoNotQueueBehindCopies(t *testing.T) {
	r := newRig(t)
	r.granted("lease")
	r.live(18900 * time.Millisecond)
	for i := range 8 * maxBatch {
		r.acquire(fmt.Sprint("jobs/", i), Forever)
	}
	for len(r.flying) > 0 && r.now < 19000e6 { // all are sent once, and the answers are lost
		r.lose(false)
	}
	due := r.e.leases[0].renewer.Wake()
	var at time.Duration
	for n := 0; at == 0 && n < 40; n++ {
		r.pass(300 * time.Millisecond) // as long as a batch takes
		for len(r.flying) > 0 && at == 0 {
			for _, req := range r.flying[0].Requests {
				if req.Verb == tenure.Renew {
					at = time.Duration(r.flying[0].sent - due)
				}
			}
			r.lose(false)
			break
		}
	}
	if at > 700*time.Millisecond {
		t.Errorf("a renewal was sent %s after it was due, behind copies of acquires", at)
	}
}

// TestEveryUnknownIsResolved: exactly once, also if the call asks again above a
// guard's token.
func TestEveryUnknownIsResolved(t *testing.T) {
	count := func(r *rig, k EventKind) (n int) {
		for _, e := range r.ready.Events {
			if e.Kind == k {
				n++
			}
		}
		return n
	}
	r := newRig(t)
	c := newAcquire("a", time.Hour)
	c.Guarded = true
	r.begin(c)
	r.lose(false)
	r.asks()
	r.answer()
	r.wantOpenRaising(c)
	r.e.Raised(r.now, c, c.Reply.Lease.Token+5, fence.ErrStale)
	r.take()
	r.settle()
	r.e.Raised(r.now, c, 0, nil)
	r.take()
	r.leaseOf(c)
	if unknown, resolved := count(r, Unknown), count(r, Resolved); unknown != 1 || resolved != 1 {
		t.Errorf("%d unknown outcomes, %d resolved, want one of each", unknown, resolved)
	}
}

// TestAnAnsweredResumeIsNotSentAgain: while its lease is being released.
func TestAnAnsweredResumeIsNotSentAgain(t *testing.T) {
	r := newRig(t)
	c := newAcquire("a", 0)
	c.Policy.MaxHold = time.Minute
	r.begin(c)
	r.settle()
	l := r.leaseOf(c)
	r.pass(59900 * time.Millisecond) // no renewal is answered
	if l.Lost == nil || l.Lost.Loss != renewal.Unreachable {
		t.Fatalf("the lease ended as %+v, want unreachable", l.Lost)
	}
	for len(r.flying) > 0 {
		r.lose(false)
	}
	r.begin(&Call{
		Request: tenure.Request{Verb: tenure.Renew, Key: l.Key, Secret: l.Secret, Resume: true},
		Lease:   l, Bound: 10 * time.Second,
	})
	r.wantFlight(tenure.Renew)
	b := r.next()
	answers := r.apply(b.Requests, r.now)
	r.pass(200 * time.Millisecond)
	r.e.Answered(r.now, b, answers)
	r.take()
	r.wantFlight(tenure.Release) // its MaxHold has passed
	r.pass(1500 * time.Millisecond)
	for _, b := range r.flying {
		for _, req := range b.Requests {
			if req.Verb == tenure.Renew {
				t.Error("the resume was sent again, though it was answered")
			}
		}
	}
}

// TestACallThatAsksAboveWatchesAgain: its first watch ended with the grant that
// a guard refused.
func TestACallThatAsksAboveWatchesAgain(t *testing.T) {
	r := newRig(t)
	held := r.another("a")
	c := newAcquire("a", Forever)
	c.Guarded = true
	r.begin(c)
	r.settle()
	r.free("a", held)
	r.e.Hint(r.now, "a", Changed, nil)
	r.take()
	r.settle()
	r.wantOpenRaising(c)
	if len(r.ready.Watch) != 1 || len(r.ready.Unwatch) != 1 {
		t.Fatalf("Watch %v, Unwatch %v, want one of each", r.ready.Watch, r.ready.Unwatch)
	}
	r.free("a", c.Reply.Lease.Secret) // as a takeover would do
	r.another("a")
	r.e.Raised(r.now, c, c.Reply.Lease.Token+5, fence.ErrStale)
	r.take()
	r.settle()
	r.wantOpen(c)
	if len(r.ready.Watch) != 2 {
		t.Errorf("Watch %v, want it begun again", r.ready.Watch)
	}
}
