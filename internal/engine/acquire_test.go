package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// refuse refuses the oldest batch in flight, which has one request.
func (r *rig) refuse(err error) {
	r.t.Helper()
	r.e.Answered(r.now, r.next(), []store.Answer{{Err: err}})
	r.take()
}

// heldFor makes a refusal with this reason and remaining time.
func heldFor(why tenure.Why, left time.Duration) error {
	return &tenure.HeldError{Why: why, Until: storeEpoch.Add(left), Now: storeEpoch}
}

// asks lets time pass until the engine sends something, and returns how long
// that took.
func (r *rig) asks() time.Duration {
	r.t.Helper()
	before := r.now
	for range 100 {
		if len(r.flying) > 0 {
			return r.now.Sub(before)
		}
		r.pass(max(r.wake.Sub(r.now), 0))
	}
	r.t.Fatal("the engine does not ask")
	return 0
}

func TestPollsGrowWithinTheirBounds(t *testing.T) {
	for _, c := range []struct {
		name string
		why  tenure.Why
		hint bool
		most time.Duration
	}{
		{"held, no hints", tenure.WhyHeld, false, PollMax},
		{"held, hints come", tenure.WhyHeld, true, PollWatched},
		{"on hold", tenure.WhyHold, false, PollSettled},
		{"done in this period", tenure.WhyPeriod, false, PollSettled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRigOn(t, &shelf{records: map[string]tenure.Record{}}, new(int), func() float64 { return 1 })
			r.acquire("a", Forever)
			if c.hint {
				r.refuse(heldFor(c.why, time.Hour))
				r.e.Hint(r.now, "a", Watched, nil)
				r.take()
			}
			var last time.Duration
			for range 12 {
				r.refuse(heldFor(c.why, time.Hour))
				pause := r.asks()
				if pause < PollFirst || pause > c.most || pause < last {
					t.Fatalf("asked after %s, after %s before; want between %s and %s, and growing", pause, last, PollFirst, c.most)
				}
				last = pause
			}
			if last != c.most {
				t.Errorf("in the end polls every %s, want every %s", last, c.most)
			}
		})
	}
}

func TestAPeriodThatOutlastsTheWaitIsNotWaitedFor(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", 10*time.Second)
	r.refuse(heldFor(tenure.WhyHeld, 5*time.Second)) // its holder may succeed meanwhile
	r.asks()
	r.refuse(heldFor(tenure.WhyPeriod, time.Hour))
	r.wantErr(c, tenure.ErrHeld)
	c = r.acquire("a", 10*time.Second)
	r.refuse(heldFor(tenure.WhyPeriod, 5*time.Second))
	r.wantOpen(c) // the work is due again in time
}

func TestAHintIsFollowedAtOnce(t *testing.T) {
	r := newRig(t)
	r.acquire("a", Forever)
	r.refuse(heldFor(tenure.WhyHeld, time.Hour))
	hint := func(h Hint) {
		r.e.Hint(r.now, "a", h, nil)
		r.take()
	}
	hint(Watched)
	r.wantFlight(tenure.Acquire) // something may have changed before the watch
	r.refuse(heldFor(tenure.WhyHeld, time.Hour))
	r.wantQuiet()
	hint(Changed)
	r.wantFlight(tenure.Acquire)
	hint(Changed)
	if len(r.flying) != 1 {
		t.Fatalf("%d requests are in flight, want the answer to come first", len(r.flying))
	}
	r.refuse(heldFor(tenure.WhyHeld, time.Hour))
	r.wantFlight(tenure.Acquire) // the store may have decided before the hint
	r.refuse(heldFor(tenure.WhyHeld, time.Hour))
	hint(Broken)
	if pause := r.asks(); pause > PollMax {
		t.Errorf("without hints it polls after %s, want at most %s", pause, PollMax)
	}
}

func TestAnAnswerThatWasGivenUpOnIsStillTaken(t *testing.T) {
	for name, refusal := range map[string]error{"granted": nil, "refused": heldFor(tenure.WhyHeld, time.Hour)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := r.acquire("a", 0)
			first := r.next()
			r.pass(hungAfter)
			r.wantFlight(tenure.Acquire)
			answers := []store.Answer{{Err: refusal}}
			if refusal == nil {
				answers = r.apply(first.Requests, r.now)
			}
			r.e.Answered(r.now, first, answers)
			r.take()
			if refusal == nil {
				r.leaseOf(c)
				return
			}
			r.wantErr(c, tenure.ErrHeld)
			if r.idle {
				t.Error("nobody finds out about the second copy")
			}
		})
	}
}

func TestALateReplyToAUsedSecretIsNotTaken(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", Forever)
	first := r.next()
	granted := r.apply(first.Requests, r.now)
	r.pass(hungAfter)
	r.refuse(&tenure.NotOwnedError{Why: tenure.WhyReleased})
	r.e.Answered(r.now, first, granted)
	r.take()
	r.wantOpen(c)
}

func TestBadInputIsNotRepeated(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", Forever)
	r.refuse(fmt.Errorf("%w key", fence.ErrInvalid))
	r.wantErr(c, fence.ErrInvalid)
	r.wantQuiet()
}

func TestAnUnreachableStoreIsSaidToBe(t *testing.T) {
	refused := store.Unknown(errors.New("connection refused"))
	for _, silent := range []bool{false, true} {
		for _, c := range []struct{ wait, end time.Duration }{{0, 5 * time.Second}, {30 * time.Second, 30 * time.Second}} {
			r := newRig(t)
			call := r.acquire("a", c.wait)
			told := false
			for call.state != done {
				for len(r.flying) > 0 && (!silent || !told) {
					told = true // a store's silence is reported once
					r.refuse(refused)
				}
				r.pass(10 * time.Millisecond)
			}
			if at := time.Duration(r.now); at < c.end || at > c.end+PollMax || !errors.Is(call.Reply.Err, refused) || r.idle {
				t.Errorf("waiting %s on a store (silent: %t): ended at %s with %v, idle %t; want %s, the reason, and an attempt that goes on",
					c.wait, silent, at, call.Reply.Err, r.idle, c.end)
			}
		}
	}
}

// TestAnAbandonedAcquireIsResolvedAndReleased goes through all fates of a
// request whose caller has left.
func TestAnAbandonedAcquireIsResolvedAndReleased(t *testing.T) {
	notGranted := &tenure.NotOwnedError{Why: tenure.WhyUnknown}
	leave := func(t *testing.T) *rig { // while the request is in flight
		r := newRig(t)
		c := r.acquire("a", Forever)
		r.e.Abandon(r.now, c, context.Canceled)
		r.take()
		return r
	}
	want := func(t *testing.T, r *rig, outcome Outcome) {
		t.Helper()
		r.wantQuiet()
		last := r.ready.Events[len(r.ready.Events)-1]
		if last.Kind != Resolved || last.Outcome != outcome || last.Grant == "" || !r.idle {
			t.Fatalf("the last event is %+v, want it resolved as %q", last, outcome)
		}
	}
	t.Run("it was refused", func(t *testing.T) {
		r := leave(t)
		r.refuse(heldFor(tenure.WhyHeld, time.Hour))
		want(t, r, WasNot)
	})
	t.Run("its term was over", func(t *testing.T) {
		r := leave(t)
		r.refuse(&tenure.NotOwnedError{Why: tenure.WhyExpired})
		want(t, r, WasNot)
	})
	t.Run("no answer, then it is released", func(t *testing.T) {
		r := leave(t)
		hung := r.next()
		r.apply(hung.Requests, r.now)
		r.asks()
		r.wantFlight(tenure.Release)
		r.lose(false)
		r.asks()
		r.wantFlight(tenure.Release)
		r.answer()
		want(t, r, WasGranted)
	})
	t.Run("not granted yet, perhaps later", func(t *testing.T) {
		r := leave(t)
		r.lose(false)
		arrived := r.now.Add(2*r.e.o.CallTimeout + time.Second)
		for r.wantFlight(tenure.Release); r.flying[0].sent < arrived; r.asks() {
			r.refuse(notGranted)
			if r.idle {
				t.Fatalf("taken for never granted at %s, while a copy may be in flight", time.Duration(r.now))
			}
		}
		r.refuse(notGranted)
		want(t, r, WasNot)
	})
	t.Run("a late answer to an early release proves nothing", func(t *testing.T) {
		r := leave(t)
		r.lose(false)
		early := r.next()
		r.asks()
		r.now = r.now.Add(20 * time.Second)
		r.e.Answered(r.now, early, []store.Answer{{Err: notGranted}})
		if r.take(); r.idle {
			t.Error("taken for never granted")
		}
	})
	t.Run("a copy may be granted while the newest is refused", func(t *testing.T) {
		r := newRig(t)
		c := r.acquire("a", 0)
		r.lose(false)
		r.asks()
		r.refuse(heldFor(tenure.WhyHeld, time.Hour))
		r.wantErr(c, tenure.ErrHeld)
		r.wantFlight(tenure.Release)
		r.refuse(&tenure.NotOwnedError{Why: tenure.WhySuperseded})
		want(t, r, WasNot)
	})
	t.Run("never known", func(t *testing.T) {
		r := leave(t)
		for !r.idle {
			for len(r.flying) > 0 {
				r.lose(false)
			}
			r.pass(100 * time.Millisecond)
		}
		want(t, r, WasLeft)
		if at := time.Duration(r.now); at < time.Minute || at > 2*time.Minute {
			t.Errorf("given up at %s, want soon after it has lapsed", at)
		}
	})
}

// TestAnAcquireEndsWhenItSeesANewHolder: with Seen, another token than that
// ends the wait. The same holder does not.
func TestAnAcquireEndsWhenItSeesANewHolder(t *testing.T) {
	r := newRigOn(t, &shelf{records: map[string]tenure.Record{}}, new(int), func() float64 { return 1 })
	known := fence.Token(7)
	c := newAcquire("a", Forever)
	c.Seen = &known
	r.begin(c)
	by := func(token fence.Token) error {
		return &tenure.HeldError{
			Record: tenure.Record{Token: token}, Why: tenure.WhyHeld, Until: storeEpoch.Add(time.Minute), Now: storeEpoch,
		}
	}
	for range 3 {
		r.asks()
		r.refuse(by(7))
		if c.state == done {
			t.Fatal("it ended although it knows the holder")
		}
	}
	r.asks()
	r.refuse(by(8))
	if c.state != done || !errors.Is(c.Reply.Err, tenure.ErrHeld) {
		t.Errorf("it goes on although there is a new holder: %v", c.Reply.Err)
	}
}
