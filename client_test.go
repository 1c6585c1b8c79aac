package croft

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestCloseEndsEverything: it ends leases, waits and loops, and releases
// nothing. Afterwards every call fails.
func TestCloseEndsEverything(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		l := r.acquire(c, "jobs/one", nil)
		r.acquire(r.client(nil, nil), "jobs/two", nil)
		var all sync.WaitGroup
		// The first waits for this client's own lease, the second asks the
		// store, and the third waits behind the second.
		for _, key := range []string{"jobs/one", "jobs/two", "jobs/two"} {
			all.Go(func() {
				if _, err := c.Acquire(r.Context(), key, &LeaseOptions{WaitFor: Forever}); !errors.Is(err, ErrClosed) {
					r.Errorf("waiting for %s: %v, want that the client is closed", key, err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		for range 2 {
			if err := c.Close(); err != nil {
				r.Error(err)
			}
		}
		all.Wait()
		wantAfter(r, start, 0, 0)
		r.wantLost(l, Closed)
		if rec := r.record("jobs/one"); rec.State != tenure.Held {
			r.Errorf("Close made the key %s", rec.State)
		}
		if left := l.Remaining(); left <= 0 {
			r.Errorf("%s remain: the store keeps the key until its deadline", left)
		}
		for name, err := range map[string]error{
			"Release":  l.Release(r.Context()),
			"Report":   l.Report(r.Context(), "x"),
			"Save":     l.Save(r.Context(), []byte("x")),
			"Acquire":  errOf(c.Acquire(r.Context(), "jobs/three", nil)),
			"Renew":    errOf(c.Renew(r.Context(), l.Deed(), false)),
			"Takeover": errOf(c.Takeover(r.Context(), "jobs/one", ByHand{Note: "x"})),
		} {
			if !errors.Is(err, ErrClosed) && lossIn(err) != Closed {
				r.Errorf("%s after Close: %v", name, err)
			}
		}
		if _, err := r.st.Get(r.Context(), "jobs/one"); err != nil {
			r.Errorf("the store, which is the caller's: %v", err)
		}
	})
}

func errOf[T any](_ T, err error) error { return err }

// TestALeaseGrantedWhileClosingIsOver: from the start.
func TestALeaseGrantedWhileClosingIsOver(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		// Close comes while the fence is being raised.
		g := &slowTarget{fencedTarget{name: "mem://slow"}, 2 * time.Second}
		done := make(chan error)
		go func() {
			_, err := c.Acquire(r.Context(), "jobs/one", &LeaseOptions{Guards: []guard.Guard{g}})
			done <- err
		}()
		time.Sleep(time.Second)
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		if err := <-done; lossIn(err) != Closed {
			r.Errorf("%v, want the client's end", err)
		}
	})
}

func TestOpenByURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Open(t.Context(), "mem://croft-open", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Do(t.Context(), "jobs/one", nil, func(context.Context, *Lease) error { return nil }); err != nil {
			t.Error(err)
		}
		st := c.Store()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if a := st.Apply(t.Context(), []tenure.Request{{Verb: tenure.Renew, Key: "k", Secret: tenure.NewSecret()}}); !errors.Is(a[0].Err, store.ErrUnknown) {
			t.Errorf("the store it opened was not closed: %v", a[0].Err)
		}
		if _, err := Open(t.Context(), "nosuch://store", nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("an unknown scheme: %v", err)
		}
	})
}

// TestTheSystemsClock: the other tests run on synctest's time. This one runs on
// the machine's own.
func TestTheSystemsClock(t *testing.T) {
	c := New(mem.New(nil), nil)
	defer c.Close()
	err := c.Do(t.Context(), "jobs/one", nil, func(_ context.Context, l *Lease) error {
		if left := l.Remaining(); left <= 0 || left > 54*time.Second {
			t.Errorf("%s remain of a new lease of a minute", left)
		}
		return l.Report(t.Context(), "here")
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheOwnerHasADefaultName(t *testing.T) {
	inBubble(t, func(r *rig) {
		one, two := r.client(nil, nil), r.client(nil, nil)
		if user, host, ok := strings.Cut(one.o.Owner, "@"); !ok || user == "" || host == "" {
			r.Errorf("owner %q, want user@host", one.o.Owner)
		}
		if one.o.Instance == two.o.Instance || one.o.Instance == "" {
			r.Errorf("instances %q and %q", one.o.Instance, two.o.Instance)
		}
		l := r.acquire(r.client(nil, &Options{Owner: "ana@box1", Instance: "run 7"}), "jobs/one", nil)
		if rec := l.Record(); rec.Owner != "ana@box1" || rec.Instance != "run 7" {
			r.Errorf("held by %q, %q", rec.Owner, rec.Instance)
		}
	})
}

// TestEventsTellALifeStory: the events and log records of one lease.
func TestEventsTellALifeStory(t *testing.T) {
	inBubble(t, func(r *rig) {
		var seen events
		var text bytes.Buffer
		tap := &tap{Store: r.st}
		c := r.client(tap, &Options{Observe: seen.observe, Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: &text}, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		l := r.acquire(c, "jobs/one", nil)
		time.Sleep(25 * time.Second)
		if _, err := c.Acquire(r.Context(), "jobs/one", nil); !errors.Is(err, ErrHeld) {
			r.Fatal(err)
		}
		tap.set(down)
		r.wantLost(l, Unreachable)
		synctest.Wait()

		acquired := seen.of(EventAcquired)
		if len(acquired) != 1 || acquired[0].Cause != tenure.First || acquired[0].Token != l.Token() {
			r.Errorf("acquired: %+v", acquired)
		}
		if got := seen.of(EventRefused); len(got) != 1 || !errors.Is(got[0].Err, ErrHeld) {
			r.Errorf("refused: %+v", got)
		}
		renewed := seen.of(EventRenewed)
		if len(renewed) != 1 || renewed[0].Margin < 30*time.Second || renewed[0].Margin > 36*time.Second || renewed[0].Idle == 0 {
			r.Fatalf("renewed: %+v", renewed)
		}
		if got := seen.of(EventRenewFailed); len(got) == 0 || got[0].Failures != 1 || !errors.Is(got[0].Err, errDown) {
			r.Errorf("renewals failed: %+v", got)
		}
		if got := seen.of(EventLost); len(got) != 1 || got[0].Loss != Unreachable {
			r.Errorf("lost: %+v", got)
		}
		outcomes := map[Outcome]int{}
		for _, call := range seen.of(EventCall) {
			outcomes[call.Outcome] += call.Count
			if call.Verb == "" || call.Batch < call.Count {
				r.Errorf("a call: %+v", call)
			}
		}
		if outcomes[OutcomeOK] != 2 || outcomes[OutcomeUnknown] < 4 {
			r.Errorf("calls by outcome: %v", outcomes)
		}
		for _, want := range []string{
			"level=INFO msg=acquired key=jobs/one", "level=INFO msg=refused", "level=DEBUG msg=renewed", "level=WARN msg=renew_failed",
			"level=WARN msg=lost", "loss=unreachable", "level=DEBUG msg=store_call namespace=jobs verb=acquire outcome=ok",
			" idle=" + renewed[0].Idle.String(),
		} {
			if !strings.Contains(text.String(), want) {
				r.Errorf("the log has no %q:\n%s", want, text.String())
			}
		}
		if secret := string(l.Deed().Secret); strings.Contains(text.String(), secret) {
			r.Error("the log has the secret")
		}
	})
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestObserversMayAskTheClient: they are called without locks held.
func TestObserversMayAskTheClient(t *testing.T) {
	inBubble(t, func(r *rig) {
		var held []*Lease
		var mu sync.Mutex
		c := r.client(nil, &Options{Observe: func(Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range held {
				_, _ = l.Remaining(), l.Err()
			}
		}})
		l := r.acquire(c, "jobs/one", nil)
		mu.Lock()
		held = append(held, l)
		mu.Unlock()
		time.Sleep(time.Minute)
		if err := l.Report(r.Context(), "x"); err != nil {
			r.Error(err)
		}
		if err := l.Release(r.Context()); err != nil {
			r.Error(err)
		}
	})
}

// TestErrorsSayWhatToDo checks the messages that people see.
func TestErrorsSayWhatToDo(t *testing.T) {
	for _, loss := range []Loss{Superseded, Expired, TakenOver, Released, Unreachable, Stalled, HeldTooLong, Closed} {
		err := &LostError{Key: "jobs/one", Token: 7, Loss: loss, Err: errDown}
		for _, want := range []string{"jobs/one", "token 7", errDown.Error(), " "} {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ": "+string(loss)+":") {
				t.Errorf("%s: %v", loss, err)
			}
		}
	}
	if err := error(&GuardError{Target: "out.json", Err: errDown}); !strings.Contains(err.Error(), "out.json") || !errors.Is(err, errDown) {
		t.Error(err)
	}
}

// TestTheClientIsClosedBeforeCallersLearnIt: a loop decides by that whether its
// own client was closed.
func TestTheClientIsClosedBeforeCallersLearnIt(t *testing.T) {
	st := mem.New(nil)
	for range 200 {
		c := New(st, nil)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for _, err := c.Acquire(t.Context(), "jobs/one", nil); !errors.Is(err, ErrClosed); _, err = c.Acquire(t.Context(), "jobs/one", nil) {
				}
				if !isClosed(c.closing) {
					t.Error("it is closed, and is not")
				}
			})
		}
		_ = c.Close()
		all.Wait()
	}
}
