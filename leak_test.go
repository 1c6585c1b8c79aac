package croft

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestNoKeyStaysHeldWhenCallersLeave: callers of Slots, AcquireAll and Lead
// leave at any moment, while acquires are slow, are lost or meet faults. Their
// TTL is long, so a lease that nobody has would show.
func TestNoKeyStaysHeldWhenCallersLeave(t *testing.T) {
	for seed := range uint64(10) {
		inBubble(t, func(r *rig) {
			random := rand.New(&locked{src: rand.NewPCG(seed, 7)})
			upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
			st := &tap{Store: r.st}
			st.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
				if batch[0].Verb != tenure.Acquire {
					return nil
				}
				select {
				case <-time.After(upTo(30 * time.Millisecond)):
				case <-ctx.Done():
					return store.Failed(len(batch), ctx.Err())
				}
				switch random.IntN(4) {
				case 0:
					return store.Failed(len(batch), store.Fault(errDown))
				case 1: // carried out, and the answer is lost
					r.st.Apply(ctx, batch)
					return down(ctx, batch)
				}
				return nil
			})
			clients := []*Client{r.client(st, nil), r.client(st, nil), r.client(nil, nil)}
			var all sync.WaitGroup
			for i := range 60 {
				c, began, stay := clients[i%3], upTo(3*time.Second), upTo(500*time.Millisecond)
				wait := []time.Duration{0, 200 * time.Millisecond, Forever}[random.IntN(3)]
				o := &LeaseOptions{TTL: time.Hour, WaitFor: wait}
				all.Go(func() {
					time.Sleep(began)
					ctx, cancel := context.WithTimeout(r.Context(), upTo(time.Second))
					defer cancel()
					switch i % 4 {
					case 0, 1:
						o.Slots = 3
						if l, err := c.Acquire(ctx, "slots", o); err == nil {
							time.Sleep(stay)
							_ = l.Release(context.WithoutCancel(ctx))
						}
					case 2:
						if ls, err := c.AcquireAll(ctx, []string{"c", "slots/2", "a"}, o); err == nil {
							time.Sleep(stay)
							_ = ls.Release(context.WithoutCancel(ctx))
						}
					default:
						err := c.Lead(ctx, "a", &Election{
							Lease: o, OnNewLeader: func(Record) {},
							OnElected: func(ctx context.Context, _ *Lease) error {
								<-ctx.Done()
								return ctx.Err()
							},
						})
						if err != nil && !errors.Is(err, ErrUnknown) {
							r.Error(err)
						}
					}
				})
			}
			all.Wait()
			st.set(nil)
			time.Sleep(time.Minute)
			for _, key := range []string{"a", "c", "slots/1", "slots/2", "slots/3"} {
				if rec := r.record(key); rec.State == tenure.Held {
					r.Errorf("seed %d: %s is held until %s", seed, key, rec.Deadline)
				}
			}
			for _, c := range clients {
				wantNothingLeft(r, c)
			}
		})
	}
}
