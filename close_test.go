package croft

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestReleaseAfterClose: the answer is the same as before Close.
func TestReleaseAfterClose(t *testing.T) {
	t.Run("released before", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			c := r.client(nil, nil)
			l := r.acquire(c, "jobs/one", nil)
			if err := l.Release(r.Context()); err != nil {
				r.Fatal(err)
			}
			if err := c.Close(); err != nil {
				r.Fatal(err)
			}
			if err := l.Release(r.Context()); err != nil {
				r.Errorf("released again: %v", err)
			}
		})
	})
	t.Run("ended by Close", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			c := r.client(nil, nil)
			l := r.acquire(c, "jobs/one", nil)
			if err := c.Close(); err != nil {
				r.Fatal(err)
			}
			if err := l.Release(r.Context()); lossIn(err) != Closed {
				r.Errorf("%v, want lost as closed", err)
			}
		})
	})
}

// TestWaitersAtCloseAreToldThatTheClientIsClosed: and not that an outcome is
// unknown, because they have sent nothing.
func TestWaitersAtCloseAreToldThatTheClientIsClosed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.acquire(r.client(nil, nil), "jobs/one", nil)
		c := r.client(nil, nil)
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() {
				_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: Forever})
				errs <- err
			}()
			synctest.Wait()
		}
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknown) {
				r.Errorf("%v, want closed and nothing else", err)
			}
		}
	})
}

// TestCloseWaitsForObservers: when Close returns, observers have got every
// event, also those of calls whose callers have left.
func TestCloseWaitsForObservers(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(200 * time.Millisecond))
		var closed atomic.Bool
		c := r.client(tap, &Options{Observe: func(e Event) {
			time.Sleep(10 * time.Millisecond)
			if closed.Load() {
				r.Errorf("%s was still being told when Close had returned", e.Kind)
			}
		}})
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := c.Acquire(ctx, "jobs/one", nil); !errors.Is(err, ErrUnknown) {
			r.Errorf("%v, want unknown", err)
		}
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		closed.Store(true)
		time.Sleep(time.Second)
	})
}

// TestAClosedClientDoesNotActByHand: it does not even ask the store, which may
// be closed too.
func TestAClosedClientDoesNotActByHand(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		if err := c.Close(); err != nil {
			r.Fatal(err)
		}
		_ = r.st.Close()
		if _, err := c.Revoke(r.Context(), "jobs/one", ByHand{Note: "x"}); !errors.Is(err, ErrClosed) {
			r.Errorf("%v, want closed", err)
		}
	})
}

// slowToRead is a store whose records take a while to read.
type slowToRead struct{ *tap }

func (s slowToRead) Get(ctx context.Context, key string) (tenure.Record, error) {
	time.Sleep(time.Second)
	return s.tap.Get(ctx, key)
}

// TestCloseWaitsForActsByHand: otherwise a takeover could be done and its fence
// stay low, because the store was closed meanwhile.
func TestCloseWaitsForActsByHand(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(slowToRead{&tap{Store: r.st}}, nil)
		var returned atomic.Bool
		go func() {
			_, _ = c.Revoke(r.Context(), "jobs/one", ByHand{Note: "x"})
			returned.Store(true)
		}()
		time.Sleep(100 * time.Millisecond)
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		synctest.Wait() // an act that has ended may not have returned yet
		if !returned.Load() {
			r.Error("Close returned while an act of its client was under way")
		}
	})
}
