package croft

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestAdoptTakesUpALeaseByItsDeed: the adopting client renews the lease from
// then on, under the same token, and releases it.
func TestAdoptTakesUpALeaseByItsDeed(t *testing.T) {
	inBubble(t, func(r *rig) {
		for name, asleep := range map[string]time.Duration{"alive": 30 * time.Second, "past its deadline": time.Hour} {
			first := r.client(nil, nil)
			l := r.acquire(first, "jobs/one", &LeaseOptions{TTL: time.Minute})
			if err := first.Close(); err != nil {
				r.Fatal(err)
			}
			time.Sleep(asleep)
			deed, err := ParseDeed(l.Deed().Text())
			if err != nil {
				r.Fatal(err)
			}
			c := r.client(nil, nil)
			adopted, err := c.Adopt(r.Context(), deed, nil)
			if err != nil {
				r.Fatalf("%s: %v", name, err)
			}
			if adopted.Stamp() != l.Stamp() {
				r.Errorf("%s: it has the stamp %s, not %s", name, adopted.Stamp(), l.Stamp())
			}
			time.Sleep(10 * time.Minute)
			if _, err := r.client(nil, nil).Acquire(r.Context(), "jobs/one", nil); adopted.Err() != nil || !errors.Is(err, ErrHeld) {
				r.Errorf("%s: it was not renewed: %v, %v", name, adopted.Err(), err)
			}
			if err := adopted.Release(r.Context()); err != nil {
				r.Errorf("%s: %v", name, err)
			}
			if rec := r.record("jobs/one"); rec.State != tenure.Free {
				r.Errorf("%s: the key is %s", name, rec.State)
			}
		}
	})
}

// TestAdoptIsRefusedWhenAnotherWasGranted: the error says that the lease is
// lost, and the other keeps the key.
func TestAdoptIsRefusedWhenAnotherWasGranted(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.client(nil, nil)
		l := r.acquire(first, "jobs/one", nil)
		if err := first.Close(); err != nil {
			r.Fatal(err)
		}
		next := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{WaitFor: Forever})
		c := r.client(nil, nil)
		_, err := c.Adopt(r.Context(), l.Deed(), nil)
		if lossIn(err) != Superseded || !errors.Is(err, ErrLost) || !errors.Is(err, ErrNotOwned) {
			r.Errorf("Adopt: %v, want superseded", err)
		}
		time.Sleep(10 * time.Minute)
		if err := next.Err(); err != nil {
			r.Errorf("the other has lost its lease: %v", err)
		}
		released := r.acquire(c, "jobs/two", nil)
		if err := released.Release(r.Context()); err != nil {
			r.Error(err)
		}
		if _, err := c.Adopt(r.Context(), released.Deed(), nil); lossIn(err) != Released {
			r.Errorf("a released lease: %v", err)
		}
	})
}

// TestAdoptKeepsItsTerms: the options of the adopting process count, and bad
// input is refused.
func TestAdoptKeepsItsTerms(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.client(nil, nil)
		l := r.acquire(first, "jobs/one", nil)
		if err := first.Close(); err != nil {
			r.Fatal(err)
		}
		c := r.client(nil, nil)
		for name, change := range map[string]func(d *Deed, o *LeaseOptions){
			"a bad key":    func(d *Deed, _ *LeaseOptions) { d.Key = "a//b" },
			"no secret":    func(d *Deed, _ *LeaseOptions) { d.Secret = "" },
			"no TTL":       func(d *Deed, _ *LeaseOptions) { d.TTL = 0 },
			"no token":     func(d *Deed, _ *LeaseOptions) { d.Token = 0 },
			"a bad option": func(_ *Deed, o *LeaseOptions) { o.MaxHold = -1 },
		} {
			d, o := l.Deed(), LeaseOptions{}
			change(&d, &o)
			if _, err := c.Adopt(r.Context(), d, &o); !errors.Is(err, ErrInvalid) {
				r.Errorf("%s: %v", name, err)
			}
		}
		start := time.Now()
		adopted, err := c.Adopt(r.Context(), l.Deed(), &LeaseOptions{MaxHold: 5 * time.Minute})
		if err != nil {
			r.Fatal(err)
		}
		r.wantLost(adopted, HeldTooLong)
		wantAfter(r, start, 5*time.Minute, 5*time.Minute+time.Second)
	})
}

// TestAdoptInADirectory: a client hands a lease over to another, which has a
// store of its own.
func TestAdoptInADirectory(t *testing.T) {
	client := clientsOfDir(t)
	first, second := client(), client()
	l, err := first.Acquire(t.Context(), "jobs/one", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	adopted, err := second.Adopt(t.Context(), l.Deed(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if adopted.Stamp() != l.Stamp() {
		t.Errorf("it has the stamp %s, not %s", adopted.Stamp(), l.Stamp())
	}
	if _, err := client().Acquire(t.Context(), "jobs/one", nil); !errors.Is(err, ErrHeld) {
		t.Errorf("another contender: %v, want held", err)
	}
}

// TestAdoptEndsNoLeaseThatItCannotKeep: the deed is older than the lease's
// present TTL, which is too short for Notice. The other process keeps it.
func TestAdoptEndsNoLeaseThatItCannotKeep(t *testing.T) {
	inBubble(t, func(r *rig) {
		l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{TTL: time.Minute})
		deed := l.Deed()
		if err := l.SetTTL(r.Context(), 10*time.Second); err != nil {
			r.Fatal(err)
		}
		_, err := r.client(nil, nil).Adopt(r.Context(), deed, &LeaseOptions{Notice: 20 * time.Second})
		if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrLost) {
			r.Errorf("adopted with a Notice that is too long: %v", err)
		}
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			r.Errorf("the other process has lost it: %v", err)
		}
	})
}

// TestAdoptEndsWithOneReason: the store has forgotten the lease, and granted
// its request anew. The lease was never kept here, so no event says that it was
// lost.
func TestAdoptEndsWithOneReason(t *testing.T) {
	inBubble(t, func(r *rig) {
		deed := r.acquire(r.client(nil, nil), "jobs/one", nil).Deed()
		time.Sleep(time.Second)
		deed.Token-- // as if it had been granted before
		var seen events
		c := r.client(nil, &Options{Observe: seen.observe})
		if _, err := c.Adopt(r.Context(), deed, nil); lossIn(err) != Superseded {
			r.Errorf("adopted by an older token: %v", err)
		}
		if lost := seen.of(EventLost); len(lost) > 0 {
			r.Errorf("there is an event %+v", lost[0])
		}
	})
}
