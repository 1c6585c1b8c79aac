package croft

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestSetTTLChangesTheTTLOfAHeldLease: longer and shorter, in the store and in
// the holder. The lease lives on, with its token, and law 5 holds all the time.
func TestSetTTLChangesTheTTLOfAHeldLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{TTL: time.Minute})
		for _, ttl := range []time.Duration{10 * time.Minute, 3 * time.Second, 90 * time.Second} {
			before := r.record("jobs/one").Deadline
			if err := l.SetTTL(r.Context(), ttl); err != nil {
				r.Fatal(err)
			}
			rec := r.record("jobs/one")
			if rec.TTL != ttl || l.Record().TTL != ttl || l.Deed().TTL != ttl || rec.Deadline.Before(before) {
				r.Errorf("%s: the record has %s, the lease %s, the deed %s; deadline %s, before %s",
					ttl, rec.TTL, l.Record().TTL, l.Deed().TTL, rec.Deadline, before)
			}
			for range 100 {
				time.Sleep(ttl / 10)
				if local, store := l.Remaining(), time.Until(r.record("jobs/one").Deadline); local > store {
					r.Fatalf("%s: %s remain locally, %s at the store", ttl, local, store)
				}
			}
			if err := l.Err(); err != nil {
				r.Fatalf("%s: %v", ttl, err)
			}
			if left := time.Until(r.record("jobs/one").Deadline); ttl > time.Minute && left < ttl/2 {
				r.Errorf("%s: %s are left; renewals do not keep the TTL", ttl, left)
			}
		}
	})
}

// TestTheRenewerTakesOverATTLThatAnotherProcessSets: by the deed, as "croft
// renew --ttl" inside "croft run" does. A TTL that is too short for Notice is
// set back.
func TestTheRenewerTakesOverATTLThatAnotherProcessSets(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := &LeaseOptions{TTL: time.Minute, Notice: 10 * time.Second}
		l := r.acquire(r.client(nil, nil), "jobs/one", o)
		for _, c := range []struct{ set, want time.Duration }{
			{time.Hour, time.Hour}, {30 * time.Second, 30 * time.Second}, {15 * time.Second, 30 * time.Second},
		} {
			if _, err := r.client(nil, nil).SetTTL(r.Context(), l.Deed(), c.set); err != nil {
				r.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			if rec := r.record("jobs/one"); rec.TTL != c.want || l.Deed().TTL != c.want || l.Err() != nil {
				r.Errorf("%s was set: the record has %s, the lease %s (%v)", c.set, rec.TTL, l.Deed().TTL, l.Err())
			}
		}
	})
}

// TestSetTTLRefusesWhatALeaseCannotHave: and changes nothing.
func TestSetTTLRefusesWhatALeaseCannotHave(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		l := r.acquire(c, "jobs/one", &LeaseOptions{TTL: time.Minute, Notice: 10 * time.Second})
		for _, ttl := range []time.Duration{0, -time.Second, time.Millisecond, tenure.MaxTTL + 1, 19 * time.Second} {
			if err := l.SetTTL(r.Context(), ttl); !errors.Is(err, ErrInvalid) {
				r.Errorf("%s: %v", ttl, err)
			}
		}
		for _, ttl := range []time.Duration{0, -time.Second, time.Millisecond, tenure.MaxTTL + 1} {
			if _, err := c.SetTTL(r.Context(), l.Deed(), ttl); !errors.Is(err, ErrInvalid) {
				r.Errorf("by deed, %s: %v", ttl, err)
			}
		}
		if rec := r.record("jobs/one"); rec.TTL != time.Minute {
			r.Errorf("the TTL is %s", rec.TTL)
		}
		if err := l.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		if err := l.SetTTL(r.Context(), time.Hour); !errors.Is(err, ErrLost) {
			r.Errorf("after the release: %v", err)
		}
		if _, err := c.SetTTL(r.Context(), l.Deed(), time.Hour); !errors.Is(err, ErrNotOwned) {
			r.Errorf("by deed, after the release: %v", err)
		}
	})
}

// TestAnUnknownSetTTLGivesNoAuthority: the store may have the shorter or the
// longer TTL. The local deadline counts by neither before a renewal shows it.
func TestAnUnknownSetTTLGivesNoAuthority(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"longer": time.Hour, "shorter": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				l := r.acquire(r.client(tap, nil), "jobs/one", &LeaseOptions{TTL: time.Minute})
				tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
					r.st.Apply(ctx, batch) // it takes effect, and the answer is lost
					return down(ctx, batch)
				})
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				if err := l.SetTTL(ctx, ttl); !errors.Is(err, ErrUnknown) {
					r.Fatal(err)
				}
				if left := l.Remaining(); left > 54*time.Second {
					r.Errorf("%s remain", left)
				}
				tap.set(nil)
				for range 60 {
					time.Sleep(time.Second)
					if local, store := l.Remaining(), time.Until(r.record("jobs/one").Deadline); local > store {
						r.Fatalf("%s remain locally, %s at the store", local, store)
					}
				}
				if got := l.Deed().TTL; got != ttl || l.Err() != nil {
					r.Errorf("the TTL is %s, want the store's %s (%v)", got, ttl, l.Err())
				}
			})
		})
	}
}
