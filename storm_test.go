package croft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// stormy loses some requests and some replies, hangs now and then, and says at
// random that other clients wait.
type stormy struct {
	*mem.Store
	calm atomic.Bool
}

func (s *stormy) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	if s.calm.Load() {
		return s.Store.Apply(ctx, batch)
	}
	switch n := rand.IntN(100); {
	case n < 3:
		return store.Failed(len(batch), errDown)
	case n < 6:
		s.Store.Apply(ctx, batch)
		return store.Failed(len(batch), errDown)
	// A request that arrives after its caller has left is still carried out.
	case n < 8:
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(1500 * time.Millisecond)):
		}
		answers := s.Store.Apply(context.WithoutCancel(ctx), batch)
		if ctx.Err() != nil {
			return store.Failed(len(batch), ctx.Err())
		}
		return answers
	case n < 10: // a slow reply
		answers := s.Store.Apply(ctx, batch)
		select {
		case <-ctx.Done():
			return store.Failed(len(batch), ctx.Err())
		case <-time.After(rand.N(1500 * time.Millisecond)):
			return answers
		}
	case n < 40:
		time.Sleep(rand.N(3 * time.Millisecond))
	}
	if ctx.Err() != nil {
		return store.Failed(len(batch), ctx.Err())
	}
	answers := s.Store.Apply(ctx, batch)
	for i := range answers {
		answers[i].Awaited = batch[i].Verb == tenure.Release && rand.IntN(3) == 0
	}
	return answers
}

// TestAStormLeavesOneTruth runs three clients with many contenders on a store
// that fails in every way. Contenders leave and release at any moment. No key
// ever has two live leases, no local deadline is later than the store's, and
// tokens rise. When the storm is over, every key can be had, and nothing is
// left in the clients.
func TestAStormLeavesOneTruth(t *testing.T) {
	inBubble(t, storm)
}

func storm(r *rig) {
	const keys, contenders, lasts = 3, 24, 20 * time.Second
	st := &stormy{Store: r.st}
	var clients [3]*Client
	for i := range clients {
		clients[i] = r.client(st, &Options{Observe: func(Event) {}, CallTimeout: 2 * time.Second})
	}
	var newest [keys]atomic.Pointer[Lease]
	var all sync.WaitGroup
	end := time.Now().Add(lasts)
	for i := range contenders {
		all.Go(func() {
			for time.Now().Before(end) {
				k := rand.IntN(keys)
				contend(r, clients[i%len(clients)], fmt.Sprint("jobs/", k), &newest[k])
			}
		})
	}
	all.Wait()

	st.calm.Store(true)
	time.Sleep(time.Minute) // leases that were not released lapse
	for _, c := range clients {
		for k := range keys {
			if err := r.acquire(c, fmt.Sprint("jobs/", k), &LeaseOptions{WaitFor: time.Second}).Release(r.Context()); err != nil {
				r.Error(err)
			}
		}
		wantNothingLeft(r, c)
	}
}

// contend is one try of one contender. It may leave at any moment, and releases
// in one of several ways.
func contend(r *rig, c *Client, key string, newest *atomic.Pointer[Lease]) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if rand.IntN(2) == 0 {
		time.AfterFunc(rand.N(50*time.Millisecond), cancel)
	}
	l, err := c.Acquire(ctx, key, &LeaseOptions{
		WaitFor: []time.Duration{0, 20 * time.Millisecond, time.Second, Forever}[rand.IntN(4)],
		TTL:     []time.Duration{300 * time.Millisecond, 5 * time.Second, 50 * time.Second}[rand.IntN(3)],
	})
	if err != nil {
		if !errors.Is(err, ErrHeld) && !errors.Is(err, ErrUnknown) && !errors.Is(err, context.Canceled) {
			r.Error(err)
		}
		return
	}
	if before := newest.Swap(l); before != nil {
		if before.Token() >= l.Token() {
			r.Errorf("token %d after %d", l.Token(), before.Token())
		}
		if before.Err() == nil && l.Err() == nil {
			r.Errorf("two may work on %s: %d and %d", key, before.Token(), l.Token())
		}
	}
	c.mu.Lock()
	if late := l.l.Deadline().Sub(c.clk.Now()) - time.Until(l.l.Record.Deadline); late > 0 {
		r.Errorf("token %d of %s: the local deadline is %s after the store's", l.Token(), key, late)
	}
	c.mu.Unlock()
	if rand.IntN(3) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	if rand.IntN(4) == 0 {
		_ = l.Report(ctx, "half way")
	}
	switch rand.IntN(4) { // releases that are not confirmed lapse
	case 0:
		_ = l.Release(ctx)
	case 1:
		_ = l.Release(l.Context())
	case 2:
		_ = l.Fail(context.WithoutCancel(ctx))
	default:
		var both sync.WaitGroup
		both.Go(func() { _ = l.Release(ctx) })
		_ = l.Release(context.WithoutCancel(ctx))
		both.Wait()
	}
}
