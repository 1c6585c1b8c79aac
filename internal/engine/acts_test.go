package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// newActsRig makes a rig whose store announces operators' acts.
func newActsRig(t *testing.T) *rig {
	r := newRig(t)
	r.e.o.Acts = true
	return r
}

func TestALeaseTakenByAnOperatorEndsAtOnce(t *testing.T) {
	r := newActsRig(t)
	l := r.granted("a")
	r.pass(actsAfter)
	if !slices.Equal(r.ready.Watch, []string{Acts}) {
		t.Fatalf("Watch is %q", r.ready.Watch)
	}
	r.e.Hint(r.now, Acts, Watched, nil)
	r.take()
	r.settle() // the engine asks once when hints begin
	r.apply([]tenure.Request{{
		Verb: tenure.Revoke, Key: "a", Secret: r.e.o.NewSecret(), Actor: "op", Note: "x",
	}}, r.now)
	r.e.Hint(r.now, "a", Acted, nil)
	r.take()
	r.wantFlight(tenure.Renew)
	r.answer()
	if l.Lost == nil || l.Lost.Loss != renewal.TakenOver {
		t.Errorf("lost as %+v, want taken over", l.Lost)
	}
	if !slices.Equal(r.ready.Unwatch, []string{Acts}) {
		t.Errorf("Unwatch is %q", r.ready.Unwatch)
	}
}

// TestAnActBeforeTheFirstHintEndsTheLease: the engine asks when hints begin,
// and does not wait for the next renewal.
func TestAnActBeforeTheFirstHintEndsTheLease(t *testing.T) {
	r := newActsRig(t)
	l := r.granted("a")
	r.apply([]tenure.Request{{
		Verb: tenure.Revoke, Key: "a", Secret: r.e.o.NewSecret(), Actor: "op", Note: "x",
	}}, r.now)
	r.pass(actsAfter)
	r.e.Hint(r.now, Acts, Watched, nil)
	r.take()
	r.wantFlight(tenure.Renew)
	r.answer()
	if l.Lost == nil || l.Lost.Loss != renewal.TakenOver {
		t.Errorf("lost as %+v, want taken over", l.Lost)
	}
}

// TestTheFirstHintMayFindTheLastLeaseOver: hints begin after the lease's local
// deadline. The engine ends the lease and the hints, and asks for hints again
// for the next lease.
func TestTheFirstHintMayFindTheLastLeaseOver(t *testing.T) {
	r := newActsRig(t)
	l := r.granted("a")
	r.pass(actsAfter)
	r.now = l.Deadline().Add(time.Second)
	r.e.Hint(r.now, Acts, Watched, nil)
	r.take()
	if l.Lost == nil || !slices.Equal(r.ready.Unwatch, []string{Acts}) {
		t.Fatalf("lost %+v, Unwatch is %q", l.Lost, r.ready.Unwatch)
	}
	r.settle()
	r.granted("b")
	r.pass(actsAfter)
	if !slices.Equal(r.ready.Watch, []string{Acts, Acts}) {
		t.Errorf("Watch is %q: nobody listens for acts on the second lease", r.ready.Watch)
	}
}

// TestAnActThatConcernsNobodyCostsNothing: and neither does a short lease.
func TestAnActThatConcernsNobodyCostsNothing(t *testing.T) {
	r := newActsRig(t)
	r.release(r.granted("a"))
	r.settle()
	r.pass(time.Minute)
	if len(r.ready.Watch) > 0 {
		t.Errorf("Watch is %q", r.ready.Watch)
	}
	r.granted("b")
	r.pass(time.Second)
	for _, key := range []string{"a", "c"} {
		r.e.Hint(r.now, key, Acted, nil)
		r.take()
		r.wantQuiet()
	}
}

// TestNewsOfActsThatBreaksIsAskedForAgain: after a pause, if a lease is kept.
func TestNewsOfActsThatBreaksIsAskedForAgain(t *testing.T) {
	for _, kept := range []bool{true, false} {
		r := newActsRig(t)
		l := r.granted("a")
		r.pass(actsAfter)
		r.e.Hint(r.now, Acts, Watched, nil)
		r.e.Hint(r.now, Acts, Broken, errors.New("gone"))
		r.take()
		if !kept {
			r.release(l)
		}
		r.live(PollSettled)
		if asked := len(r.ready.Watch) == 2; asked != kept {
			t.Errorf("with a lease %t: Watch is %q", kept, r.ready.Watch)
		}
	}
	r := newActsRig(t)
	r.granted("a")
	r.pass(actsAfter)
	r.e.Hint(r.now, Acts, Unsupported, errors.New("never"))
	r.take()
	r.live(time.Minute)
	if len(r.ready.Watch) != 1 {
		t.Errorf("Watch is %q, though the store cannot tell", r.ready.Watch)
	}
}

// TestALeaseIsDoubtedWhenItsKeyIsGrantedAgain: the hint about the act may come
// after that, or not at all.
func TestALeaseIsDoubtedWhenItsKeyIsGrantedAgain(t *testing.T) {
	r := newActsRig(t)
	l := r.granted("a")
	r.pass(actsAfter)
	r.e.Hint(r.now, Acts, Watched, nil)
	c := r.acquire("a", time.Minute)
	r.live(2 * time.Second)
	r.wantOpen(c)
	r.apply([]tenure.Request{{
		Verb: tenure.Revoke, Key: "a", Secret: r.e.o.NewSecret(), Actor: "op", Note: "x",
	}}, r.now)
	r.e.Hint(r.now, "a", Changed, nil)
	r.take()
	r.settle()
	next := r.leaseOf(c)
	r.e.Hint(r.now, "a", Acted, nil) // overtaken by the grant
	r.take()
	r.settle()
	if l.Lost == nil || l.Lost.Loss != renewal.TakenOver {
		t.Errorf("lost as %+v, want taken over", l.Lost)
	}
	if next.Lost != nil {
		t.Errorf("the new lease is lost as %+v", next.Lost)
	}
}

// TestNewsOfActsThatNeverComesIsAskedForLessAndLess: a user may not be allowed
// to get these hints, and every attempt costs the server a connection.
func TestNewsOfActsThatNeverComesIsAskedForLessAndLess(t *testing.T) {
	r := newActsRig(t)
	asked := 0
	for end := r.now.Add(time.Hour); r.now < end; {
		l := r.granted("a")
		r.live(time.Second)
		r.release(l)
		r.settle()
		if n := len(r.ready.Watch); n > asked {
			asked = n
			r.e.Hint(r.now, Acts, Broken, errors.New("not allowed"))
			r.take()
		}
	}
	if asked > 90 {
		t.Errorf("asked %d times in an hour", asked)
	}
	told := 0
	for _, e := range r.ready.Events {
		if e.Kind == Unwatched {
			told++
		}
	}
	if told != asked {
		t.Errorf("%d events for %d attempts", told, asked)
	}
}

// TestActsThatCouldNotBeToldAreAskedForLater: a store that cannot notify now
// may be reached in another way later.
func TestActsThatCouldNotBeToldAreAskedForLater(t *testing.T) {
	r := newActsRig(t)
	r.granted("a")
	r.pass(actsAfter)
	r.e.Hint(r.now, Acts, Unsupported, errors.New("not now"))
	r.take()
	r.live(actsUnsupported)
	if n := len(r.ready.Watch); n != 2 {
		t.Errorf("asked %d times, want once more", n)
	}
}

// TestAResumedLeaseIsToldOfActs: also while another call of the client waits
// for its key.
func TestAResumedLeaseIsToldOfActs(t *testing.T) {
	r := newActsRig(t)
	l := r.granted("a")
	waiting := r.acquire("a", time.Hour)
	r.pass(2 * time.Minute)
	for len(r.flying) > 0 {
		r.lose(false)
	}
	c := r.begin(&Call{
		Request: tenure.Request{Verb: tenure.Renew, Key: "a", Secret: l.Secret, Resume: true}, Lease: l,
		Policy: renewal.Policy{TTL: time.Minute, MaxFailures: 3},
	})
	for c.state != done {
		b := r.next()
		if b.Requests[0].Verb == tenure.Renew {
			r.e.Answered(r.now, b, r.apply(b.Requests, r.now))
			r.take()
			continue
		}
		r.e.Answered(r.now, b, store.Failed(len(b.Requests), errLost))
		r.take()
	}
	resumed := r.leaseOf(c)
	r.settle()
	r.wantOpen(waiting)
	r.apply([]tenure.Request{{
		Verb: tenure.Takeover, Key: "a", Secret: tenure.NewSecret(), Owner: "operator", Instance: "x", TTL: time.Hour,
		Actor: "operator", Note: "why not",
	}}, r.now)
	r.e.Hint(r.now, "a", Acted, nil)
	r.take()
	r.settle()
	if resumed.Lost == nil || resumed.Lost.Loss != renewal.TakenOver {
		t.Errorf("lost as %+v, want taken over", resumed.Lost)
	}
}
