package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/tenure"
)

// newActsRig is a rig whose store tells of operators' acts.
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
	r.apply([]tenure.Request{{
		Verb: tenure.Revoke, Key: "a", Secret: r.e.o.NewSecret(), Actor: "op", Note: "x",
	}}, r.now)
	r.e.Hint(r.now, "a", Acted, nil)
	r.take()
	r.wantFlight(tenure.Renew)
	r.answer()
	if l.Lost == nil || l.Lost.Loss != keep.TakenOver {
		t.Errorf("lost as %+v, want taken over", l.Lost)
	}
	if !slices.Equal(r.ready.Unwatch, []string{Acts}) {
		t.Errorf("Unwatch is %q", r.ready.Unwatch)
	}
}

// TestAnActThatConcernsNobodyCostsNothing, and neither does a short lease.
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

// TestNewsOfActsThatBreaksIsAskedForAgain, after a pause, while a lease is kept.
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
