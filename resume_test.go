package croft

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestResumeTakesUpWhatNobodyTook: a new lease with the same token.
func TestResumeTakesUpWhatNobodyTook(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c, clk := r.sleeper(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		if _, err := l.Resume(r.Context()); !errors.Is(err, ErrInvalid) {
			r.Errorf("resuming a lease that lives: %v, want invalid", err)
		}
		clk.Suspend(time.Hour)
		time.Sleep(2 * time.Minute) // it has lapsed at the store too
		r.wantLost(l, Expired)
		resumed, err := l.Resume(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		if resumed == l || resumed.Token() != l.Token() || resumed.Stamp() != l.Stamp() || resumed.Err() != nil || l.Err() == nil {
			r.Errorf("resumed: token %d after %d, %v", resumed.Token(), l.Token(), resumed.Err())
		}
		time.Sleep(10 * time.Minute)
		if err := resumed.Err(); err != nil {
			r.Errorf("the resumed lease is not renewed: %v", err)
		}
		tap.forget()
		if _, err := c.Acquire(r.Context(), "jobs/one", nil); !errors.Is(err, ErrHeld) {
			r.Errorf("another contender: %v, want held", err)
		}
		got := make(chan *Lease, 1)
		go func() { got <- r.acquire(c, "jobs/one", &LeaseOptions{WaitFor: Forever}) }()
		synctest.Wait()
		start := time.Now()
		if err := resumed.Release(r.Context()); err != nil {
			r.Error(err)
		}
		<-got
		wantAfter(r, start, 0, 0)
	})
}

func TestResumeIsRefusedWhenAnotherWasGranted(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		l := r.acquire(r.client(tap, nil), "jobs/one", nil)
		tap.set(down)
		r.wantLost(l, Unreachable)
		tap.set(nil)
		next := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{WaitFor: Forever})
		_, err := l.Resume(r.Context())
		var refusal *tenure.NotOwnedError
		if lossIn(err) != Superseded || !errors.As(err, &refusal) || refusal.Record.Token != next.Token() {
			r.Errorf("%v, want that token %d has superseded it", err, next.Token())
		}
	})
}

// TestResumeIsOfTheSameTerm: a store that has forgotten the lease grants a late
// copy of its request anew. That gives another token, and is no resumption.
func TestResumeIsOfTheSameTerm(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, clk := r.sleeper(nil, nil)
		l := r.acquire(c, "jobs/one", nil)
		clk.Suspend(time.Hour)
		r.wantLost(l, Expired)
		r.st.Wipe()
		time.Sleep(time.Second)
		late := tenure.Request{Verb: tenure.Acquire, Key: "jobs/one", Secret: l.Deed().Secret, Owner: "me", TTL: time.Minute}
		if a := r.st.Apply(r.Context(), []tenure.Request{late}); a[0].Err != nil || a[0].Record.Token == l.Token() {
			r.Fatalf("the late copy: %v, token %d", a[0].Err, a[0].Record.Token)
		}
		if resumed, err := l.Resume(r.Context()); lossIn(err) != Superseded {
			r.Errorf("resumed as %v, %v", resumed, err)
		}
		r.acquire(c, "jobs/one", nil) // the key is free for others
	})
}

func TestResumeIsForLossesByTimeAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		released := r.acquire(c, "jobs/one", nil)
		if err := released.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		long := r.acquire(c, "jobs/two", &LeaseOptions{MaxHold: time.Minute})
		r.wantLost(long, HeldTooLong)
		for l, loss := range map[*Lease]Loss{released: Released, long: HeldTooLong} {
			if _, err := l.Resume(r.Context()); lossIn(err) != loss {
				r.Errorf("resuming what was lost as %s: %v", loss, err)
			}
		}
	})
}

// TestMaxHoldBoundsTheWholeOfAResumedLease: it counts from the first grant.
func TestMaxHoldBoundsTheWholeOfAResumedLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, clk := r.sleeper(nil, nil)
		l := r.acquire(c, "jobs/one", &LeaseOptions{MaxHold: time.Hour})
		clk.Suspend(50 * time.Minute)
		r.wantLost(l, Expired)
		resumed, err := l.Resume(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		start := time.Now()
		r.wantLost(resumed, HeldTooLong)
		wantAfter(r, start, 9*time.Minute, 10*time.Minute)
		clk.Suspend(time.Hour)
		other := r.acquire(c, "jobs/two", &LeaseOptions{MaxHold: time.Hour})
		clk.Suspend(2 * time.Hour)
		if loss := lossIn(other.Err()); loss != HeldTooLong && loss != Expired {
			r.Errorf("lost as %s", loss)
		}
		if _, err := other.Resume(r.Context()); !errors.Is(err, ErrLost) {
			r.Errorf("resumed past MaxHold: %v", err)
		}
	})
}

// TestLaw5ALeaseOnItsWayBackIsNotResumed: a release that nobody waits for any
// more may arrive after the renewal. Then the store would keep the key for
// nobody.
func TestLaw5ALeaseOnItsWayBackIsNotResumed(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c, clk := r.sleeper(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		clk.Suspend(time.Hour)
		r.wantLost(l, Expired)
		tap.set(only(tenure.Release, slow(4*time.Second)))
		if err := l.Release(r.Context()); !errors.Is(err, ErrUnknown) {
			r.Fatal(err)
		}
		resumed, err := l.Resume(r.Context())
		if lossIn(err) != Released {
			r.Errorf("%v, want that it was released", err)
		}
		time.Sleep(5 * time.Second)
		if rec := r.record("jobs/one"); rec.State == tenure.Free && resumed != nil && resumed.Err() == nil {
			r.Error("a lease lives of which the store knows nothing")
		}
	})
}
