package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

var errFault = store.Fault(errors.New("the port is closed"))

// fault answers the oldest batch with a fault.
func (r *rig) fault() {
	r.t.Helper()
	b := r.next()
	r.e.Answered(r.now, b, store.Failed(len(b.Requests), errFault))
	r.take()
}

// TestAFaultEndsASingleTryAtOnce: nothing was changed, so nothing is left to
// find out. The same holds for an operator's act.
func TestAFaultEndsASingleTryAtOnce(t *testing.T) {
	r := newRig(t)
	for _, c := range []*Call{
		r.acquire("a", 0),
		r.begin(&Call{Request: tenure.Request{Verb: tenure.Revoke, Key: "b", Actor: "op", Note: "why"}}),
	} {
		r.fault()
		r.wantErr(c, errFault)
		if !store.IsFault(c.Reply.Err) {
			t.Errorf("%s ends with %v, want a fault", c.Request.Verb, c.Reply.Err)
		}
	}
	if len(r.flying) > 0 || !r.idle {
		t.Errorf("%d batches are in flight, idle is %t", len(r.flying), r.idle)
	}
}

// TestAFaultDoesNotSettleAnEarlierCopy: the first copy may have been granted,
// so the call goes on until it knows.
func TestAFaultDoesNotSettleAnEarlierCopy(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", 0)
	r.lose(true)
	r.pass(time.Second)
	r.fault()
	r.wantOpen(c)
	r.pass(time.Second)
	r.answer()
	r.leaseOf(c)
}

// TestACallThatWaitsGoesOnAfterAFault: the store may only be starting again.
func TestACallThatWaitsGoesOnAfterAFault(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", time.Minute)
	for range 5 {
		r.fault()
		r.wantOpen(c)
		r.pass(time.Second)
	}
	r.answer()
	r.leaseOf(c)
}

// TestAGrantAfterFaultsIsFresh: the store is down for longer than the TTL, and
// says each time that nothing was changed. So the term counts from the copy
// that was granted. After an unknown outcome it counts from the first copy.
func TestAGrantAfterFaultsIsFresh(t *testing.T) {
	for _, fault := range []bool{true, false} {
		r := newRig(t)
		c := r.acquire("a", time.Hour)
		for begun := r.now; r.now.Sub(begun) < 2*c.Policy.TTL; {
			if fault {
				r.fault()
			} else {
				r.lose(false)
			}
			for len(r.flying) == 0 {
				r.pass(100 * time.Millisecond)
			}
		}
		r.answer()
		if !fault {
			r.wantOpen(c)
			continue
		}
		if left := r.leaseOf(c).Deadline().Sub(r.now); left < c.Policy.TTL/2 {
			t.Errorf("the lease lasts for %s more", left)
		}
	}
}

// TestAHeldLeaseOutlivesAFault: its renewal and its release are asked again.
func TestAHeldLeaseOutlivesAFault(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	r.pass(25 * time.Second) // a renewal is due after a third of the TTL
	r.wantFlight(tenure.Renew)
	r.fault()
	if l.Lost != nil {
		t.Fatalf("the lease ended as %+v", l.Lost)
	}
	r.live(10 * time.Second)
	c := r.release(l)
	r.fault()
	r.wantOpen(c)
	r.pass(time.Second)
	r.answer()
	r.wantErr(c, nil)
	if got := r.records["a"].State; got != tenure.Free {
		t.Errorf("the key is %s, want it free", got)
	}
}

// TestAFaultAtTheEndProvesNothingOfEarlierCopies: the first copy was granted,
// and every other one met a fault. The reply must not say that nothing was
// changed.
func TestAFaultAtTheEndProvesNothingOfEarlierCopies(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", 0)
	r.lose(true)
	for range 20 {
		r.pass(time.Second)
		if c.state == done {
			break
		}
		for len(r.flying) > 0 {
			r.fault()
		}
	}
	r.wantErr(c, errFault)
	if store.IsFault(c.Reply.Err) {
		t.Errorf("the acquire ends with %v, which is a fault", c.Reply.Err)
	}
	r.settle() // the release of the grant
	if got := r.records["a"].State; got != tenure.Free {
		t.Errorf("the key is %s, want it free", got)
	}
}

// TestAReleaseThatGoesOnIsNoFault: a caller that leaves after faults is not
// told that nothing was changed, because one more copy is sent.
func TestAReleaseThatGoesOnIsNoFault(t *testing.T) {
	r := newRig(t)
	c := r.release(r.granted("a"))
	r.fault()
	r.wantOpen(c)
	r.e.Abandon(r.now, c, context.Canceled)
	r.take()
	r.wantErr(c, context.Canceled)
	if store.IsFault(c.Reply.Err) {
		t.Errorf("the release ends with %v, which is a fault", c.Reply.Err)
	}
	r.settle()
	if got := r.records["a"].State; got != tenure.Free {
		t.Errorf("the key is %s, want it free", got)
	}
}

// TestCloseReleasesAfterAShortCall: the call in flight may last a whole
// CallTimeout. Close then has time left to release its grant.
func TestCloseReleasesAfterAShortCall(t *testing.T) {
	r := newRig(t)
	r.e.o.CallTimeout = 500 * time.Millisecond
	c := r.acquire("a", 0)
	r.e.Close(r.now, errors.New("closed"))
	r.take()
	r.pass(r.e.o.CallTimeout)
	r.lose(true) // its time is up
	r.wantFlight(tenure.Release)
	r.settle()
	if got := r.records["a"].State; c.Reply.Err == nil || got != tenure.Free || !r.idle || r.e.Left() {
		t.Errorf("%v; the key is %s, idle is %t", c.Reply.Err, got, r.idle)
	}
}

// TestACallerThatLeavesAfterAFaultSeesBoth: nothing was changed, and its
// context has ended.
func TestACallerThatLeavesAfterAFaultSeesBoth(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	c := r.begin(&Call{Lease: l, Request: tenure.Request{Verb: tenure.Report, Key: "a", Secret: l.Secret, Progress: "half"}})
	r.fault()
	r.wantOpen(c)
	r.e.Abandon(r.now, c, context.Canceled)
	r.take()
	r.wantErr(c, context.Canceled)
	if !store.IsFault(c.Reply.Err) {
		t.Errorf("the report ends with %v, want a fault", c.Reply.Err)
	}
}
