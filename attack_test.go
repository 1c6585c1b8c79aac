package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// A1: once it has succeeded it goes on succeeding, also after Close.
func TestAttackReleaseAfterCloseGoesOnSucceeding(t *testing.T) {
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
			r.Errorf("released again after Close: %v", err)
		}
	})
}

// A2: a lease that Close ended is told as lost.
func TestAttackReleaseOfALeaseThatCloseEndedIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		l := r.acquire(c, "jobs/one", nil)
		if err := c.Close(); err != nil {
			r.Fatal(err)
		}
		if err := l.Release(r.Context()); !errors.Is(err, ErrLost) || lossIn(err) != Closed {
			r.Errorf("release after Close: %v, want lost as closed", err)
		}
	})
}

// A3: waiters behind the first are told ErrClosed, and no unknown.
func TestAttackWaitersAtCloseAreNotToldUnknown(t *testing.T) {
	inBubble(t, func(r *rig) {
		other := r.client(nil, nil)
		r.acquire(other, "jobs/one", nil)
		c := r.client(nil, nil)
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{WaitFor: Forever})
				errs <- err
			}()
			synctest.Wait()
		}
		if err := c.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
		for range 3 {
			if err := <-errs; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknown) {
				r.Errorf("unknown=%t: %v", errors.Is(err, ErrUnknown), err)
			}
		}
	})
}

// A4: a store that gives too few answers, observed.
func TestAttackTooFewAnswersObserved(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		var ev events
		c := r.client(tap, &Options{Observe: ev.observe})
		tap.set(func(_ context.Context, batch []tenure.Request) []store.Answer { return []store.Answer{} })
		_, err := c.Acquire(r.Context(), "jobs/one", nil)
		if !errors.Is(err, ErrUnknown) {
			r.Error(err)
		}
		tap.set(nil)
	})
}

// A5: report with a context that is over counts as progress.
func TestAttackReportWithAnEndedContextCounts(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		l := r.acquire(c, "jobs/one", &LeaseOptions{TTL: time.Minute, StallAfter: 30 * time.Second})
		over, cancel := context.WithCancel(r.Context())
		cancel()
		for range 30 {
			time.Sleep(10 * time.Second)
			_ = l.Report(over, "still here")
		}
		if err := l.Err(); err != nil {
			r.Errorf("the work reported every 10s: %v", err)
		}
	})
}

// A6: what was not sent to the store is not noted as refused.
func TestAttackNoRefusedReleaseThatWasNotSent(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		l := r.acquire(c, "jobs/one", nil)
		if _, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x"}); err != nil {
			r.Fatal(err)
		}
		<-l.Done() // at the next renewal
		for range 5 {
			_ = l.Release(r.Context())
			time.Sleep(2 * time.Second)
		}
		time.Sleep(10 * time.Second)
		n, _ := tap.count(tenure.Release)
		noted := 0
		for _, x := range r.refusals("") {
			if x.Act == "release" {
				noted += x.Count
			}
		}
		if n != 0 || noted != 0 {
			r.Errorf("%d releases were sent, and %d are noted as refused", n, noted)
		}
	})
}

// A7: the panic test as it was.
func TestAttackAPanicOfTheStoreHoldsUpNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		c := r.client(tap, nil)
		r.acquire(c, "jobs/zero", nil)
		tap.set(func(context.Context, []tenure.Request) []store.Answer { panic("a bug") })
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Acquire(r.Context(), "jobs/one", nil)
		}()
		time.Sleep(time.Second)
		tap.set(nil)
	})
}

// A8: Close waits until observers have been told.
func TestAttackCloseWaitsForEvents(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		tap.set(slow(20 * time.Millisecond))
		var telling, closed atomic.Bool
		var late atomic.Int64
		c := r.client(tap, &Options{Observe: func(e Event) {
			if e.Kind == EventReleased || e.Kind == EventAcquired {
				telling.Store(true)
				time.Sleep(10 * time.Millisecond)
				if closed.Load() {
					late.Add(1)
				}
			}
		}})
		r.acquire(c, "jobs/warm", nil)
		l := r.acquire(c, "jobs/one", nil)
		if err := l.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		if err := c.Close(); err != nil {
			r.Fatal(err)
		}
		closed.Store(true)
		time.Sleep(time.Second)
		if n := late.Load(); n > 0 {
			r.Errorf("%d events were still being told when Close had returned", n)
		}
	})
}

// A9: in real time: that a lease began is told before its end.
func TestAttackEventsOfALeaseComeInOrder(t *testing.T) {
	type id struct {
		key   string
		token int64
	}
	var mu sync.Mutex
	began := map[id]bool{}
	wrong, all := 0, 0
	c := New(mem.New(nil), &Options{Observe: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		l := id{e.Key, int64(e.Token)}
		switch e.Kind {
		case EventAcquired:
			began[l] = true
		case EventReleased:
			all++
			if !began[l] {
				wrong++
			}
			delete(began, l)
		}
	}})
	var wait sync.WaitGroup
	for i := range 64 {
		wait.Go(func() {
			for range 300 {
				l, err := c.Acquire(t.Context(), fmt.Sprint("jobs/", i), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	c.Close()
	mu.Lock()
	defer mu.Unlock()
	if wrong > 0 {
		t.Errorf("of %d leases %d were told to be released before they began", all, wrong)
	}
}

// A10: an act by hand on a closed client touches nothing.
func TestAttackAClosedClientActsNotByHand(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		if err := c.Close(); err != nil {
			r.Fatal(err)
		}
		r.st.Close()
		_, err := c.Revoke(r.Context(), "jobs/one", ByHand{Note: "x"})
		if !errors.Is(err, ErrClosed) {
			r.Errorf("got %v", err)
		}
	})
}
