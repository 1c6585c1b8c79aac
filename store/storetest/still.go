package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// still is the context of a client that stands still once: when the store asks
// for the context's error the nth time. Stores do so between their steps.
type still struct {
	context.Context
	looks atomic.Int64
	nth   int64
	pause func()
}

func (c *still) Err() error {
	if c.looks.Add(1) == c.nth {
		c.pause()
	}
	return c.Context.Err()
}

const (
	// mostLooks bounds the points at which a client stands still.
	mostLooks = 12
	// standstill is the longest time for which it does so. Only a store that
	// holds a lock at that point uses it up, because the other client waits.
	standstill = time.Second
)

// sweptWhileStill lets two clients contend for a key that has expired, was
// never released, and is due to be dropped. One of them stands still after each
// of its steps in turn. Meanwhile the other sweeps and acquires. Only one may
// be granted. A store that compares versions fails if it uses a version of the
// dropped record again.
func sweptWhileStill(t *trial) {
	t.forgetful()
	slow, quick := t.store, t.open()
	for nth := range int64(mostLooks) {
		key := fmt.Sprintf("retention/still/%d", nth)
		old := t.must(t.expiring(acquire(key, "ann"))).Record
		t.pass(old.Quiet().Add(t.options.Retention))
		requests := []tenure.Request{acquire(key, "bob"), acquire(key, "cid")}
		answers := make([]store.Answer, len(requests))
		done := make(chan struct{})
		overtake := func() {
			defer close(done)
			if sw, ok := quick.(store.Sweeper); ok {
				if _, err := sw.Sweep(t.ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("Sweep: %v", err)
				}
			}
			answers[1] = t.resolve(quick, requests[1])
		}
		ctx := &still{Context: t.ctx, nth: nth + 1, pause: func() {
			go overtake()
			select {
			case <-done:
			case <-time.After(standstill):
			}
		}}
		answers[0] = Resolve(ctx, slow, requests[0])
		t.alive()
		if ctx.looks.Load() < ctx.nth { // it has stood still everywhere
			return
		}
		<-done
		winner := t.oneGrant(requests, answers)
		if rec := t.get(t.store, key); rec.Grant != requests[winner].Secret.Grant() {
			t.Fatalf("%s was granted %q, and the record is of %q", requests[winner].Owner, key, rec.Owner)
		}
	}
}

// reclaimWhileSwept lets many clients ask for expired keys that others sweep.
// It is for stores that never look at their context between two steps.
func reclaimWhileSwept(t *trial) {
	t.forgetful()
	handles := t.handles(4)
	for n := range t.many(40, 4, 12) {
		key := fmt.Sprintf("retention/reclaim/%d", n)
		old := t.must(t.expiring(acquire(key, "ann"))).Record
		t.pass(old.Quiet().Add(t.options.Retention))
		const contenders, sweepers = 6, 3
		requests, answers := make([]tenure.Request, contenders), make([]store.Answer, contenders)
		for i := range requests {
			requests[i] = acquire(key, fmt.Sprintf("contender %d", i))
		}
		suite.Together(contenders+sweepers, func(i int) {
			if i = (i + n) % (contenders + sweepers); i < contenders { // not always the same start first
				answers[i] = t.resolve(handles[i%len(handles)], requests[i])
			} else if sw, ok := handles[i-contenders].(store.Sweeper); ok {
				_, _ = sw.Sweep(t.ctx)
			}
		})
		winner := t.oneGrant(requests, answers)
		if rec := t.get(t.store, key); rec.Grant != requests[winner].Secret.Grant() {
			t.Fatalf("%s was granted %q, and the record is of %q", requests[winner].Owner, key, rec.Owner)
		}
	}
}
