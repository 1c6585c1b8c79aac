package croft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAllKeysOrNone: if one key is held, AcquireAll holds none.
func TestAllKeysOrNone(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, other := r.client(nil, nil), r.client(nil, nil)
		held := r.acquire(other, "b", nil)
		start := time.Now()
		_, err := c.AcquireAll(r.Context(), []string{"c", "b", "a"}, &LeaseOptions{WaitFor: 10 * time.Second})
		if !errors.Is(err, ErrHeld) {
			r.Errorf("b is held: %v", err)
		}
		wantAfter(r, start, 10*time.Second, 11*time.Second)
		for _, key := range []string{"a", "c"} {
			if err := r.acquire(other, key, nil).Release(r.Context()); err != nil {
				r.Error(err)
			}
		}
		if err := held.Release(r.Context()); err != nil {
			r.Error(err)
		}
		all, err := c.AcquireAll(r.Context(), []string{"c", "b", "a"}, nil)
		if err != nil {
			r.Fatal(err)
		}
		for i, key := range []string{"c", "b", "a"} {
			if all[i].Key() != key {
				r.Errorf("lease %d is on %q", i, all[i].Key())
			}
		}
		work, stop := all.Within(r.Context())
		defer stop()
		if _, err := other.Revoke(r.Context(), "b", ByHand{Note: "test"}); err != nil {
			r.Fatal(err)
		}
		<-work.Done()
		if lossIn(context.Cause(work)) != TakenOver {
			r.Errorf("the work's context ended with %v", context.Cause(work))
		}
		if err := all.Release(r.Context()); lossIn(err) != TakenOver {
			r.Errorf("the release of one that was revoked: %v", err)
		}
		r.acquire(other, "a", nil)
		r.acquire(other, "c", nil)
	})
}

// TestALossEndsTheWaitForAll: one of the leases is revoked while the next key
// is waited for.
func TestALossEndsTheWaitForAll(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, other := r.client(nil, nil), r.client(nil, nil)
		r.acquire(other, "b", nil)
		done := make(chan error)
		go func() {
			_, err := c.AcquireAll(r.Context(), []string{"a", "b"}, &LeaseOptions{WaitFor: Forever})
			done <- err
		}()
		time.Sleep(time.Minute)
		if _, err := other.Revoke(r.Context(), "a", ByHand{Note: "test"}); err != nil {
			r.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrLost) || lossIn(err) != TakenOver {
			r.Errorf("AcquireAll returned %v", err)
		}
	})
}

func TestBadKeysAreRefusedTogether(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		for name, keys := range map[string][]string{
			"no key": nil, "one twice": {"a", "b", "a"}, "a bad one": {"a", "b//c"}, "too many": make([]string, 65),
		} {
			if _, err := c.AcquireAll(r.Context(), keys, nil); !errors.Is(err, ErrInvalid) {
				r.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.AcquireAll(r.Context(), []string{"a"}, &LeaseOptions{Guards: make([]Guard, 1)}); !errors.Is(err, ErrInvalid) {
			r.Errorf("with a guard: %v", err)
		}
		r.acquire(c, "a", nil)
	})
}

// TestALeaseIsNotReEntrant: the error of a second Acquire by the same client
// says so, and that of another client does not.
func TestALeaseIsNotReEntrant(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		err := c.Do(r.Context(), "a", nil, func(ctx context.Context, _ *Lease) error { return c.Do(ctx, "a", nil, nil) })
		if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "not re-entrant, so pass the lease on") {
			r.Errorf("the same client: %v", err)
		}
		r.acquire(c, "a", nil)
		_, err = r.client(nil, nil).Acquire(r.Context(), "a", nil)
		if !errors.Is(err, ErrHeld) || strings.Contains(err.Error(), "re-entrant") {
			r.Errorf("another client: %v", err)
		}
	})
}

// TestCallersOfAllNeverWaitInACircle: many callers take overlapping keys, named
// in any order. All of them succeed, and no key has two holders.
func TestCallersOfAllNeverWaitInACircle(t *testing.T) {
	t.Run("mem", func(t *testing.T) {
		inBubble(t, func(r *rig) { contendForAll(r.T, 6, 20, func() *Client { return r.client(nil, nil) }) })
	})
	t.Run("dir", func(t *testing.T) {
		clients := clientsOfDir(t)
		contendForAll(t, 3, 5, clients)
	})
}

// clientsOfDir returns a function that makes clients of one directory, each
// with a store of its own.
func clientsOfDir(t *testing.T) func() *Client {
	path := t.TempDir()
	return func() *Client {
		st, err := dir.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := New(st, nil)
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), st.Close()); err != nil && !errors.Is(err, store.ErrUnknown) {
				t.Error(err)
			}
		})
		return c
	}
}

func contendForAll(t *testing.T, callers, rounds int, client func() *Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // a busy machine may need more than the usual 2 seconds
	defer cancel()
	var holders [4]atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		c, random := client(), rand.New(rand.NewPCG(uint64(i), 1))
		all.Go(func() {
			for range rounds {
				picked := random.Perm(len(holders))[:2+random.IntN(3)]
				var keys []string
				for _, k := range picked {
					keys = append(keys, fmt.Sprint("jobs/", k))
				}
				leases, err := c.AcquireAll(ctx, keys, &LeaseOptions{WaitFor: Forever, TTL: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				for _, k := range picked {
					if holders[k].Add(1) > 1 {
						t.Errorf("key %d has two holders", k)
					}
				}
				for _, k := range picked {
					holders[k].Add(-1)
				}
				if err := leases.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// TestAPanicLeavesNoneOfAllHeld: a store panics at the last key. The caller may
// recover, and nobody has the leases on the others.
func TestAPanicLeavesNoneOfAllHeld(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &tap{Store: r.st}
		c := r.client(st, nil)
		r.acquire(c, "first", nil) // the store has answered promptly, so callers ask it themselves
		st.set(func(_ context.Context, batch []tenure.Request) []store.Answer {
			if batch[0].Key == "c" {
				panic("a fault of the store")
			}
			return nil
		})
		func() {
			defer func() {
				if recover() == nil {
					r.Error("the panic was hidden")
				}
			}()
			_, _ = c.AcquireAll(r.Context(), []string{"a", "b", "c"}, nil)
		}()
		for _, key := range []string{"a", "b"} {
			if rec := r.record(key); rec.State == tenure.Held {
				r.Errorf("%s is held until %s", key, rec.Deadline)
			}
		}
	})
}

// TestNoWorkBeginsUnderALostLease: the context of Within has ended when Within
// returns, if a lease has.
func TestNoWorkBeginsUnderALostLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		all := Leases{r.acquire(c, "a", nil), r.acquire(c, "b", nil)}
		if err := all[1].Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		work, stop := all.Within(r.Context())
		defer stop()
		if work.Err() == nil || lossIn(context.Cause(work)) != Released {
			r.Errorf("the context goes on: %v", context.Cause(work))
		}
	})
}
