package httpfence

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// at puts a gate under a clock that stands still until it is moved. Timers fire
// at once, so a waiting write looks at the clock again and again.
type standing struct{ *clock.Manual }

func (standing) Timer(time.Duration) clock.Timer { return instantly{time.After(time.Millisecond)} }

type instantly struct{ c <-chan time.Time }

func (i instantly) C() <-chan time.Time { return i.c }
func (instantly) Stop()                 {}

func at(g *Gate) *clock.Manual {
	m := clock.NewManual(clock.Instant(time.Hour))
	g.core.Clock = standing{m}
	return m
}

func serve(t *testing.T, g *Gate) string {
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(echo)))
	t.Cleanup(front.Close)
	return front.URL + "/r/1"
}

// soon is how long a write waits where a test wants it refused. A write that
// must get in has the same time, also on a machine that stands still for a
// second.
const soon = 3 * time.Second

// impatient makes a write to a closed resource fail soon.
func impatient(o *Options) { o.Wait, o.Settle = soon, time.Minute }

// crash ends a gate like a process that died: its lease is not renewed any
// more, and lapses in the store.
func crash(t *testing.T, w *world, owner string) {
	t.Helper()
	c := newClient(t, w.store, owner)
	if _, err := c.Acquire(t.Context(), DefaultLeasePrefix+"r/1", &croft.LeaseOptions{TTL: 30 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for {
		rec, err := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1")
		if err != nil {
			t.Fatal(err)
		}
		if !rec.Alive(time.Now()) {
			return
		}
		time.Sleep(time.Until(rec.Deadline))
	}
}

// TestOneGateForAResource: the other gates stand by and say so. A gate that
// ends well hands over at once.
func TestOneGateForAResource(t *testing.T) {
	t.Parallel()
	w := newWorld()
	one, two := w.gate(t, "one", impatient), w.gate(t, "two", impatient)
	first, second := serve(t, one), serve(t, two)
	send(t, "PUT", first, older, "").want(t, "the first gate", 200, "")
	r := send(t, "PUT", second, newer, "")
	r.want(t, "the second gate", 503, "held")
	if r.problem == nil || r.problem.RetryAfter != time.Second || r.problem.Sent {
		t.Errorf("the standby says %s, want when to try again", r)
	}
	send(t, "GET", second, older, "").want(t, "a read through the standby", 200, "")
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, "PUT", first, older, "").want(t, "a gate that was closed", 503, "held")
	send(t, "PUT", second, newer, "").want(t, "the second gate, then", 200, "")
	send(t, "PUT", second, older, "").want(t, "the older owner at the second gate", 409, "stale")
}

// TestAfterAGateThatDidNotEndWellItSettlesFirst: writes that it had sent may
// still be on their way.
func TestAfterAGateThatDidNotEndWellItSettlesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld()
	crash(t, w, "zero")
	g := w.gate(t, "one", impatient)
	clk := at(g)
	url := serve(t, g)
	r := send(t, "PUT", url, newer, "")
	r.want(t, "at once", 503, "unknown")
	if r.problem == nil || r.problem.RetryAfter != time.Minute || !strings.Contains(r.problem.Detail, "closed for another 1m0s") {
		t.Errorf("%s, want when it opens", r)
	}
	if rec, _ := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1"); !strings.HasPrefix(rec.Progress, "closed for 1m0s: ") || !strings.Contains(rec.Progress, "did not end well (expired)") {
		t.Errorf("the record says %q", rec.Progress)
	}
	clk.Advance(time.Minute - 1)
	send(t, "PUT", url, newer, "").want(t, "a moment too early", 503, "unknown")
	clk.Advance(1)
	send(t, "PUT", url, newer, "").want(t, "settled", 200, "")
	rec, _ := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1")
	if rec.Progress != "" || rec.History[len(rec.History)-2].Ended != tenure.EndReleased {
		t.Errorf("an open term follows a closed one: %+v", rec)
	}
}

// TestAGateThatGivesUpWhileItSettlesPassesThatOn: the next gate waits the whole
// settle time.
func TestAGateThatGivesUpWhileItSettlesPassesThatOn(t *testing.T) {
	t.Parallel()
	w := newWorld()
	crash(t, w, "zero")
	one, two := w.gate(t, "one", impatient), w.gate(t, "two", impatient)
	send(t, "PUT", serve(t, one), newer, "").want(t, "the first", 503, "unknown")
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, "PUT", serve(t, two), newer, "").want(t, "the second", 503, "unknown")
}

// TestAStoreThatForgotIsNotTakenForAFirstTime: the marks show that there were
// writes.
func TestAStoreThatForgotIsNotTakenForAFirstTime(t *testing.T) {
	t.Parallel()
	w := newWorld()
	one := w.gate(t, "one", impatient)
	send(t, "PUT", serve(t, one), newer, "").want(t, "the very first", 200, "")
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.store.Wipe()
	two := w.gate(t, "two", impatient)
	send(t, "PUT", serve(t, two), newer, "").want(t, "after the store has forgotten", 503, "unknown")
	if rec, _ := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1"); !strings.Contains(rec.Progress, "remembers no gate") {
		t.Errorf("the record says %q, want why", rec.Progress)
	}
}

// TestARaisedMarkIsNotTakenForAForgottenGate: gates with Served know that no
// gate has sent anything. So the first one does not wait.
func TestARaisedMarkIsNotTakenForAForgottenGate(t *testing.T) {
	t.Parallel()
	w := newWorld()
	mark, err := w.marks.open(t.Context(), "r/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mark.Raise(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	recording := func(o *Options) {
		impatient(o)
		o.Served = w.marks.served
	}
	one := w.gate(t, "one", recording)
	url := serve(t, one)
	send(t, "PUT", url, newer, "").want(t, "the first write", 200, "")
	send(t, "PUT", url, older, "").want(t, "one from below the mark", 409, "stale")
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.store.Wipe()
	send(t, "PUT", serve(t, w.gate(t, "two", recording)), newer, "").want(t, "after the store has forgotten", 503, "unknown")
}

// TestAServedResourceIsRecordedLater: this happens if the record could not be
// made at first.
func TestAServedResourceIsRecordedLater(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var down atomic.Bool
	down.Store(true)
	recording := func(o *Options) {
		o.Served = func(ctx context.Context, resource string) (guard.Guard, error) {
			if down.Load() {
				return nil, errors.New("out of reach")
			}
			return w.marks.served(ctx, resource)
		}
	}
	one := w.gate(t, "one", recording) // waits for the settle time, because it cannot know
	send(t, "PUT", serve(t, one), newer, "").want(t, "the first write", 200, "")
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	down.Store(false)
	two := w.gate(t, "two", recording)
	send(t, "PUT", serve(t, two), newer, "").want(t, "of the next gate", 200, "")
	if mark := w.mark(t, "r/1/."); mark.IsZero() {
		t.Error("it is not recorded that gates have served the resource")
	}
}

// TestAGateFromWhichTheKeyWasTakenMayNotKnow: so the next gate waits for its
// lease to run out, too.
func TestAGateFromWhichTheKeyWasTakenMayNotKnow(t *testing.T) {
	t.Parallel()
	w := newWorld()
	one, two := w.gate(t, "one", impatient), w.gate(t, "two", impatient)
	clk := at(two)
	send(t, "PUT", serve(t, one), older, "").want(t, "the first gate", 200, "")
	op := newClient(t, w.store, "op")
	if _, err := op.Revoke(t.Context(), DefaultLeasePrefix+"r/1", croft.ByHand{Note: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := Reopen(t.Context(), op, "", "r/1", croft.ByHand{Note: "test"}); !errors.Is(err, tenure.ErrHeld) {
		t.Errorf("opening it by hand: %v, want ErrHeld: the first gate may not know", err)
	}
	url := serve(t, two)
	send(t, "PUT", url, newer, "").want(t, "at once", 503, "unknown")
	clk.Advance(time.Minute) // the settle time
	send(t, "PUT", url, newer, "").want(t, "after the settle time", 503, "unknown")
	clk.Advance(two.o.TTL)
	send(t, "PUT", url, newer, "").want(t, "after both", 200, "")
}

// TestAnOperatorOpensWhatIsClosed: the operator can open a resource at once,
// even if it would stay closed for ever. The store keeps a record. An open
// resource cannot be opened.
func TestAnOperatorOpensWhatIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld()
	op := newClient(t, w.store, "op")
	why := croft.ByHand{Actor: "ann", Note: "the service was restarted"}
	if err := Reopen(t.Context(), op, "", "r/1", why); !errors.Is(err, ErrOpen) {
		t.Errorf("what nobody knows: %v, want ErrOpen", err)
	}
	crash(t, w, "zero")
	g := w.gate(t, "one", func(o *Options) { o.Settle, o.Wait = croft.Forever, soon })
	url := serve(t, g)
	r := send(t, "PUT", url, newer, "")
	r.want(t, "closed", 503, "unknown")
	if !strings.Contains(r.body, "until an operator opens it (croft proxy open)") {
		t.Errorf("%s, want what to do", r)
	}
	if err := Reopen(t.Context(), op, "", "r/1", croft.ByHand{}); err == nil {
		t.Error("opened without a note")
	}
	if err := Reopen(t.Context(), op, "", "r/1", why); err != nil {
		t.Fatal(err)
	}
	rec, _ := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1")
	if last := rec.History[len(rec.History)-1]; last.Actor != "ann" || last.Note != "opened: "+why.Note {
		t.Errorf("the record does not say who opened it, and why: %+v", last)
	}
	send(t, "PUT", url, newer, "").want(t, "opened", 200, "")
	if err := Reopen(t.Context(), op, "", "r/1", why); !errors.Is(err, ErrOpen) {
		t.Errorf("what is served: %v, want ErrOpen", err)
	}
	send(t, "PUT", url, newer, "").want(t, "still open", 200, "")
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Reopen(t.Context(), op, "", "r/1", why); !errors.Is(err, ErrOpen) {
		t.Errorf("what ended well: %v, want ErrOpen", err)
	}
	crash(t, w, "zero")
	if err := Reopen(t.Context(), op, "", "r/1", why); err != nil {
		t.Errorf("what a dead gate left: %v", err)
	}
	send(t, "PUT", serve(t, w.gate(t, "two", impatient)), newer, "").want(t, "after that", 200, "")
}

// TestAnOperatorWhoDidNotLookOpensNothing: if a key was taken by hand and given
// back, nobody knows what its gate had sent.
func TestAnOperatorWhoDidNotLookOpensNothing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	send(t, "PUT", serve(t, w.gate(t, "one", impatient)), older, "").want(t, "the first gate", 200, "")
	op := newClient(t, w.store, "op")
	taken, err := op.Takeover(t.Context(), DefaultLeasePrefix+"r/1", croft.ByHand{Note: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := op.Release(t.Context(), taken.Deed, false); err != nil {
		t.Fatal(err)
	}
	send(t, "PUT", serve(t, w.gate(t, "two", impatient)), newer, "").want(t, "the second gate", 503, "unknown")
}

// TestAWriteWaitsForTheOperator: a write that waits long enough notices that
// the resource was opened.
func TestAWriteWaitsForTheOperator(t *testing.T) {
	t.Parallel()
	w := newWorld()
	crash(t, w, "zero")
	closed := make(chan struct{}, 1)
	g := w.gate(t, "one", func(o *Options) {
		o.Settle = croft.Forever
		o.Observe = func(e gate.Event) {
			if e.Kind == gate.Closed {
				closed <- struct{}{}
			}
		}
	})
	url := serve(t, g)
	done := make(chan reply, 1)
	go func() {
		r, _ := sendErr(context.WithoutCancel(t.Context()), "PUT", url, newer, "")
		done <- r
	}()
	<-closed
	op := newClient(t, w.store, "op")
	var err error
	for err = ErrOpen; errors.Is(err, ErrOpen); err = Reopen(t.Context(), op, "", "r/1", croft.ByHand{Note: "test"}) {
		time.Sleep(time.Millisecond) // the record says a moment later that it is closed
	}
	if err != nil {
		t.Fatal(err)
	}
	(<-done).want(t, "the write that waited", 200, "")
}

// TestAnIdleResourceIsGivenBack: the gate gives the lease back, at once for
// another gate, and frees the memory.
func TestAnIdleResourceIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld()
	left := make(chan struct{}, 1)
	one := w.gate(t, "one", func(o *Options) {
		o.Idle = 20 * time.Millisecond
		o.Observe = func(e gate.Event) {
			if e.Kind == gate.Left {
				left <- struct{}{}
			}
		}
	})
	url := serve(t, one)
	send(t, "PUT", url, newer, "").want(t, "the first gate", 200, "")
	<-left
	two := w.gate(t, "two", impatient)
	send(t, "PUT", serve(t, two), newer, "").want(t, "the second gate", 200, "")
	if err := two.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, "PUT", url, newer, "").want(t, "the first gate again", 200, "")
}

// TestAnIdleGateLearnsFromTheTermsWhetherToStayClosed: a closed gate loses its
// lease to an operator, and gives the resource up as idle while a write
// arrives. The next term is open only if the operator has opened the resource.
func TestAnIdleGateLearnsFromTheTermsWhetherToStayClosed(t *testing.T) {
	t.Parallel()
	why := croft.ByHand{Note: "test"}
	for _, c := range []struct {
		name   string
		act    func(ctx context.Context, op *croft.Client) error
		status int
		code   string
	}{
		{"opened", func(ctx context.Context, op *croft.Client) error {
			return Reopen(ctx, op, "", "r/1", why)
		}, 200, ""},
		{"revoked", func(ctx context.Context, op *croft.Client) error {
			_, err := op.Revoke(ctx, DefaultLeasePrefix+"r/1", why)
			return err
		}, 503, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			crash(t, w, "zero")
			g := w.gate(t, "one", func(o *Options) { o.Settle, o.Wait = croft.Forever, soon })
			url := serve(t, g)
			send(t, "PUT", url, newer, "").want(t, "closed", 503, "unknown")
			a, err := g.core.Arrive(t.Context(), admission.Write{Resource: "r/1"})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Depart()
			if err := c.act(t.Context(), newClient(t, w.store, "op")); err != nil {
				t.Fatal(err)
			}
			s, _ := g.core.Inspect("r/1")
			if err := s.Lease.Report(t.Context(), "still there"); !errors.Is(err, croft.ErrNotOwned) {
				t.Errorf("the gate's lease: %v, want ErrNotOwned", err)
			}
			g.core.ReleaseIdle("r/1", 0)
			if s, _ = g.core.Inspect("r/1"); s.Lease != nil {
				t.Error("the idle gate has kept the lease that it had lost")
			}
			send(t, "PUT", url, newer, "").want(t, "the next write", c.status, c.code)
		})
	}
}

// TestWithoutLeasesADoubtIsKeptUntilItHasSettled: there are no terms that would
// tell the next gate of the doubt. So the state stays, although the resource is
// idle.
func TestWithoutLeasesADoubtIsKeptUntilItHasSettled(t *testing.T) {
	t.Parallel()
	g := newWorld().gate(t, "one", func(o *Options) {
		impatient(o)
		o.Client, o.Idle = nil, time.Nanosecond
	})
	clk := at(g)
	a, err := g.core.Arrive(t.Context(), admission.Write{Resource: "r/1"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.InDoubt("test")
	a.Depart()
	clk.Advance(time.Minute - 1)
	g.core.ReleaseIdle("r/1", g.core.Options.Idle)
	url := serve(t, g)
	send(t, "PUT", url, newer, "").want(t, "a moment too early", 503, "unknown")
	clk.Advance(1)
	send(t, "PUT", url, newer, "").want(t, "settled", 200, "")
}

// faulty is a store of leases that can be made unreachable.
type faulty struct {
	*mem.Store
	down atomic.Bool
}

func (f *faulty) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	if f.down.Load() {
		return store.Failed(len(requests), errors.New("connection refused"))
	}
	return f.Store.Apply(ctx, requests)
}

// TestWithoutTheLeaseNothingIsWritten: if the store cannot be reached, writes
// stop when the lease has run out, and reads pass. When it is back and nobody
// else had the lease meanwhile, the gate goes on where it was.
func TestWithoutTheLeaseNothingIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld()
	st := &faulty{Store: w.store.Open(nil)}
	client := croft.New(st, &croft.Options{Owner: "one", CallTimeout: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	g := w.gate(t, "one", func(o *Options) {
		impatient(o)
		o.Client, o.TTL = client, 2*time.Second
	})
	url := serve(t, g)
	send(t, "PUT", url, newer, "").want(t, "before", 200, "")
	st.down.Store(true)
	var r reply
	testEventually(t, func() bool {
		r = send(t, "PUT", url, newer, "")
		return r.status != 200
	})
	r.want(t, "when the lease has run out", 503, "unknown")
	if !strings.Contains(r.body, "own lease cannot be taken") || r.problem.Sent {
		t.Errorf("%s, want it to say what is wrong, and that nothing was sent", r)
	}
	send(t, "PUT", strings.TrimSuffix(url, "1")+"2", newer, "").want(t, "a resource not seen before", 503, "unknown")
	send(t, "GET", url, newer, "").want(t, "a read", 200, "")
	st.down.Store(false)
	send(t, "PUT", url, newer, "").want(t, "when it is back", 200, "")
}

// TestALostLeaseEndsTheHandlersContext: the cause of the context is the loss.
// The gate goes on under a new lease when it may.
func TestALostLeaseEndsTheHandlersContext(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "one", impatient)
	clk := at(g)
	entered := make(chan struct{})
	lost := make(chan error, 1)
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(entered)
			<-r.Context().Done()
			lost <- context.Cause(r.Context())
		}
	})))
	defer front.Close()
	go func() {
		<-entered
		w.lose(t, g)
	}()
	send(t, "POST", front.URL+"/r/1", newer, "")
	if err := <-lost; !errors.Is(err, croft.ErrLost) {
		t.Errorf("the handler's context ended with %v, want ErrLost", err)
	}
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "at once", 503, "unknown")
	clk.Advance(g.core.Options.Settle + g.core.Options.TTL)
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the next", 200, "")
}
