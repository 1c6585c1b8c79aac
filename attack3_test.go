package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func TestAttackStormCost(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		r.acquire(c, "jobs/kept", nil)
		tap.set(slow(200 * time.Millisecond))
		var all sync.WaitGroup
		for i := range 40_000 {
			all.Go(func() {
				_, _ = c.Acquire(r.Context(), fmt.Sprint("jobs/", i), &LeaseOptions{TTL: time.Hour, WaitFor: time.Minute})
			})
		}
		all.Wait()
		tap.set(nil)
	})
}

// B7: a caller that is passed the key just before its patience ends waits for the answer.
func TestAttackAPassedKeyIsPursued(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		var all sync.WaitGroup
		all.Go(func() {
			start := time.Now()
			_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: 10 * time.Second})
			if err != nil {
				r.Errorf("after %s: %v", time.Since(start), err)
			}
		})
		time.Sleep(9900 * time.Millisecond)
		tap.set(slow(50 * time.Millisecond))
		r.acquire(c, "jobs/two", nil) // the store is not prompt
		tap.set(slow(1500 * time.Millisecond))
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
		all.Wait()
		tap.set(nil)
	})
}

// slowGuard takes its time.
type slowGuard struct {
	target string
	raise  func(ctx context.Context, s fence.Stamp) error
}

func (g *slowGuard) Target() string { return g.target }
func (g *slowGuard) Raise(ctx context.Context, s fence.Stamp) (fence.Mark, error) {
	return fence.Mark{}, g.raise(ctx, s)
}
func (g *slowGuard) Mark(context.Context) (fence.Mark, error) { return fence.Mark{}, nil }
func (g *slowGuard) Close() error                             { return nil }

// watchTap is a tap that gives hints and counts watches.
type watchTap struct {
	*tap
	mu      sync.Mutex
	watches int
}

func (w *watchTap) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	w.mu.Lock()
	w.watches++
	w.mu.Unlock()
	return w.tap.Store.(store.Watcher).Watch(ctx, key)
}

// B3: an acquire that asks again above a guard's token still follows hints.
func TestAttackAnAcquireThatAsksAboveWatches(t *testing.T) {
	inBubble(t, func(r *rig) {
		w := &watchTap{tap: &tap{Store: r.st}}
		c, other := r.client(w, nil), r.client(nil, nil)
		l := r.acquire(other, "jobs/one", nil)
		raised := 0
		var taken *Transfer
		g := &slowGuard{target: "mem:x", raise: func(ctx context.Context, s fence.Stamp) error {
			raised++
			if raised == 1 {
				taken, _ = other.Takeover(ctx, "jobs/one", ByHand{Note: "x"})
				return &fence.StaleError{Newest: fence.Mark{Key: "jobs/one", Token: s.Token + 5}}
			}
			return nil
		}}
		var all sync.WaitGroup
		var freed time.Time
		all.Go(func() {
			next, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: Forever, Guards: guardsOf(g)})
			if err != nil {
				r.Error(err)
				return
			}
			wantAfter(r, freed, 0, 10*time.Millisecond)
			_ = next.Release(r.Context())
		})
		synctest.Wait()
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
		time.Sleep(20 * time.Second)
		freed = time.Now()
		if _, err := other.Release(r.Context(), taken.Deed, false); err != nil {
			r.Error(err)
		}
		all.Wait()
	})
}

// B5: Close waits for an operator's act.
func TestAttackCloseWaitsForAnAct(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		tap.set(slow(300 * time.Millisecond))
		done := make(chan error, 1)
		get := &getTap{tap: tap, d: time.Second}
		c2 := r.client(get, nil)
		go func() {
			_, err := c2.Revoke(r.Context(), "jobs/one", ByHand{Note: "x"})
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		if err := c2.Close(); err != nil {
			r.Error(err)
		}
		select {
		case err := <-done:
			r.Logf("the act: %v", err)
		default:
			r.Error("Close returned while an act of its client was under way")
			<-done
		}
		_ = c
		_ = errors.New
		_ = tenure.Revoke
	})
}

type getTap struct {
	*tap
	d time.Duration
}

func (g *getTap) Get(ctx context.Context, key string) (tenure.Record, error) {
	time.Sleep(g.d)
	return g.tap.Store.Get(ctx, key)
}

func guardsOf(g guard.Guard) []guard.Guard { return []guard.Guard{g} }

func (g *slowGuard) Rekey(context.Context, string, string, string) (fence.Mark, error) {
	return fence.Mark{}, nil
}
func (g *slowGuard) Reset(context.Context, fence.Token, string, string) (fence.Mark, error) {
	return fence.Mark{}, nil
}
