package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// B1: one call that fails, or one renewal that is skipped, while many acquires wait: the lease is renewed all the same.
func TestAttackARenewalSentAgainDoesNotQueueBehindAcquires(t *testing.T) {
	for _, name := range []string{"skipped", "call failed"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				tap := &tap{Store: r.st}
				c := r.client(tap, nil)
				l := r.acquire(c, "jobs/kept", &LeaseOptions{TTL: 6 * time.Second})
				var failed atomic.Bool
				var renewals atomic.Int64
				start := time.Now()
				tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
					time.Sleep(200 * time.Millisecond)
					for i, req := range batch {
						if req.Verb != tenure.Renew {
							continue
						}
						renewals.Add(1)
						r.Logf("renewal number %d sent at %s, in a batch of %d", renewals.Load(), time.Since(start)-200*time.Millisecond, len(batch))
						if failed.CompareAndSwap(false, true) {
							if name == "call failed" {
								return store.Failed(len(batch), errDown)
							}
							answers := r.st.Apply(ctx, batch)
							answers[i] = store.Failed(1, errDown)[0]
							return answers
						}
					}
					return nil
				})
				var all sync.WaitGroup
				for i := range 40_000 {
					all.Go(func() {
						_, _ = c.Acquire(r.Context(), fmt.Sprint("jobs/", i), &LeaseOptions{TTL: time.Hour, WaitFor: time.Minute})
					})
				}
				time.Sleep(6 * time.Second)
				if err := l.Err(); err != nil {
					r.Errorf("after one failure: %v", err)
				}
				tap.set(nil)
				all.Wait()
			})
		})
	}
}

// B2: three calls of one key with two periods: the third is refused at once.
func TestAttackTwoPeriodsAndASingleTry(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		hour, two := &LeaseOptions{Every: 2 * time.Hour}, &LeaseOptions{Every: 4 * time.Hour}
		if err := r.acquire(c, "jobs/one", hour).Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		ctx, cancel := context.WithCancel(r.Context())
		var all sync.WaitGroup
		for _, o := range []*LeaseOptions{hour, two} {
			with := *o
			with.WaitFor = Forever
			all.Go(func() { _, _ = c.Acquire(ctx, "jobs/one", &with) })
			time.Sleep(time.Minute)
		}
		tap.forget()
		tap.set(slow(time.Millisecond))
		start := time.Now()
		_, err := c.Acquire(r.Context(), "jobs/one", two)
		n, _ := tap.count(tenure.Acquire)
		if !errors.Is(err, ErrHeld) || n > 3 {
			r.Errorf("after %s and %d requests: %v", time.Since(start), n, err)
		}
		cancel()
		all.Wait()
	})
}
