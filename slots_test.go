package croft

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAtMostNHoldTheSlotsOfAKey: many contend, never more than N hold a slot,
// and no slot stays free while somebody waits.
func TestAtMostNHoldTheSlotsOfAKey(t *testing.T) {
	t.Run("mem", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			start := time.Now()
			contendForSlots(r.T, 30, 1, time.Minute, func() *Client { return r.client(nil, nil) })
			wantAfter(r, start, 10*time.Minute, 11*time.Minute) // 30 minutes of work in 3 slots
		})
	})
	t.Run("dir", func(t *testing.T) { contendForSlots(t, 5, 4, 0, clientsOfDir(t)) })
}

func contendForSlots(t *testing.T, contenders, rounds int, work time.Duration, client func() *Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	var holders atomic.Int64
	var all sync.WaitGroup
	for range contenders {
		c := client()
		all.Go(func() {
			for range rounds {
				err := c.Do(ctx, "jobs", &LeaseOptions{Slots: 3, WaitFor: Forever}, func(_ context.Context, l *Lease) error {
					if n := holders.Add(1); n > 3 {
						t.Errorf("%d hold 3 slots", n)
					}
					if !strings.HasPrefix(l.Key(), "jobs/") {
						t.Errorf("the lease is on %q", l.Key())
					}
					time.Sleep(work)
					holders.Add(-1)
					return nil
				})
				if err != nil && !errors.Is(err, ErrUnknown) { // a release may take too long on a busy machine
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestNoSlotIsFree: with all slots taken, an acquire is refused at once, or
// after its WaitFor. It gets the slot that comes free first.
func TestNoSlotIsFree(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		slots := map[string]*Lease{}
		for range 3 {
			l := r.acquire(r.client(nil, nil), "jobs", &LeaseOptions{Slots: 3})
			slots[l.Key()] = l
		}
		if len(slots) != 3 || slots["jobs/1"] == nil || slots["jobs/2"] == nil || slots["jobs/3"] == nil {
			r.Fatalf("three hold %v", slots)
		}
		start := time.Now()
		for _, wait := range []time.Duration{0, 10 * time.Second} {
			if _, err := c.Acquire(r.Context(), "jobs", &LeaseOptions{Slots: 3, WaitFor: wait}); !errors.Is(err, ErrHeld) {
				r.Errorf("after %s: %v", wait, err)
			}
		}
		wantAfter(r, start, 10*time.Second, 11*time.Second)
		time.AfterFunc(time.Minute, func() {
			if err := slots["jobs/2"].Release(r.Context()); err != nil {
				r.Error(err)
			}
		})
		l := r.acquire(c, "jobs", &LeaseOptions{Slots: 3, WaitFor: Forever})
		if l.Key() != "jobs/2" {
			r.Errorf("it got %s", l.Key())
		}
		brief, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if _, err := c.Acquire(brief, "jobs", &LeaseOptions{Slots: 3, WaitFor: Forever}); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("after the end of the context: %v", err)
		}
		for name, o := range map[string]*LeaseOptions{
			"less than none": {Slots: -1}, "too many": {Slots: 65}, "a period": {Slots: 2, Every: time.Hour},
			"a guard": {Slots: 2, Guards: make([]Guard, 1)}, "a bad TTL": {Slots: 2, TTL: -1},
		} {
			if _, err := c.Acquire(r.Context(), "jobs", o); !errors.Is(err, ErrInvalid) {
				r.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.AcquireAll(r.Context(), []string{"a"}, &LeaseOptions{Slots: 2}); !errors.Is(err, ErrInvalid) {
			r.Errorf("slots of several keys: %v", err)
		}
	})
}

// TestWaitingForASlotSurvivesAStoreThatRestarts: a store whose port is closed
// for a minute does not end an acquire that waits. An acquire that does not
// wait ends at once.
func TestWaitingForASlotSurvivesAStoreThatRestarts(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &tap{Store: r.st}
		c := r.client(st, nil)
		st.set(func(_ context.Context, batch []tenure.Request) []store.Answer {
			return store.Failed(len(batch), store.Fault(errDown))
		})
		start := time.Now()
		if _, err := c.Acquire(r.Context(), "jobs", &LeaseOptions{Slots: 3}); !store.IsFault(err) {
			r.Errorf("without a wait: %v", err)
		}
		wantAfter(r, start, 0, time.Second)
		time.AfterFunc(time.Minute, func() { st.set(nil) })
		l, err := c.Acquire(r.Context(), "jobs", &LeaseOptions{Slots: 3, WaitFor: time.Hour})
		if err != nil {
			r.Fatalf("with a wait: %v", err)
		}
		wantAfter(r, start, time.Minute, 2*time.Minute)
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
		wantNothingLeft(r, c)
	})
}
