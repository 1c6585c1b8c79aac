package work_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// add puts n items into a queue.
func add(t *testing.T, l work.Ledger, queue string, n int, change func(r *work.Request)) []work.ID {
	t.Helper()
	var requests []work.Request
	for i := range n {
		req := work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue, Payload: fmt.Append(nil, i)}
		if change != nil {
			change(&req)
		}
		requests = append(requests, req)
	}
	var ids []work.ID
	for _, a := range l.Apply(context.Background(), requests) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		ids = append(ids, a.Item.ID)
	}
	return ids
}

func get(t *testing.T, l work.Ledger, id work.ID) work.Item {
	t.Helper()
	it, err := l.Get(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// worker is a running work.Run in a synctest bubble.
type worker struct {
	stop func() error
}

func start(l work.Ledger, handlers map[string]work.Handler, o *work.Options) worker {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- work.RunOn(ctx, l, handlers, o, work.BubbleClock{}) }()
	return worker{stop: func() error {
		cancel()
		return <-done
	}}
}

func one(h work.Handler) map[string]work.Handler { return map[string]work.Handler{"q": h} }

// TestAPauseOfTheWorkerIsTold: the machine sleeps. Without that, the worker
// says nothing of pauses.
func TestAPauseOfTheWorkerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, clk := mem.NewLedger(nil), clock.NewProcess()
		var pauses []time.Duration
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- work.RunOn(ctx, l, one(func(context.Context, *work.Job) (work.Result, error) {
				return work.Result{}, nil
			}), &work.Options{Observe: func(e work.Event) {
				if e.Kind == work.EventPaused {
					pauses = append(pauses, e.Took)
				}
			}}, clk)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		clk.Suspend(time.Hour)
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(pauses) != 1 || pauses[0] < time.Hour-time.Second || pauses[0] > time.Hour+time.Second {
			t.Errorf("told of pauses of %v, want one of an hour", pauses)
		}
	})
}

// TestEveryItemIsDoneOnce: several slots do many items. Each item has its
// result in the ledger.
func TestEveryItemIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		ids := add(t, l, "q", 200, nil)
		var calls atomic.Int64
		w := start(l, one(func(_ context.Context, j *work.Job) (work.Result, error) {
			calls.Add(1)
			time.Sleep(10 * time.Millisecond)
			return work.Result{Body: append([]byte("done "), j.Payload()...), Effects: []work.Emission{{Name: "x"}}}, nil
		}), &work.Options{Slots: 16})
		time.Sleep(time.Minute)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		for i, id := range ids {
			if it := get(t, l, id); it.State != work.Done || string(it.Result) != fmt.Sprintf("done %d", i) {
				t.Fatalf("item %d is %s with %q", i, it.State, it.Result)
			}
		}
		if calls.Load() != 200 {
			t.Errorf("%d calls for 200 items", calls.Load())
		}
	})
}

// TestALongHandlerIsKeptAlive: heartbeats keep the item from lapsing while its
// handler works.
func TestALongHandlerIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		id := add(t, l, "q", 1, nil)[0]
		w := start(l, one(func(ctx context.Context, _ *work.Job) (work.Result, error) {
			select {
			case <-time.After(time.Hour):
				return work.Result{}, nil
			case <-ctx.Done():
				return work.Result{}, context.Cause(ctx)
			}
		}), &work.Options{TTL: 30 * time.Second})
		for range 100 {
			time.Sleep(30 * time.Second)
			if it := get(t, l, id); it.Lapsed(time.Now()) {
				t.Fatal("it lapsed")
			}
		}
		time.Sleep(20 * time.Minute)
		if it := get(t, l, id); it.State != work.Done {
			t.Errorf("it is %s", it.State)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAReassignEndsTheContext: the context ends within a heartbeat, with a
// typed cause. The result that the handler then returns does not count.
func TestAReassignEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		id := add(t, l, "q", 1, nil)[0]
		cause := make(chan error, 1)
		w := start(l, one(func(ctx context.Context, _ *work.Job) (work.Result, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return work.Result{Body: []byte("stale"), Effects: []work.Emission{{Name: "x"}}}, nil
		}), &work.Options{TTL: 30 * time.Second})
		time.Sleep(time.Second)
		l.Apply(t.Context(), []work.Request{{Verb: work.Reassign, ID: id, Secret: tenure.NewSecret(), Owner: "cleo", Actor: "olga", Note: "stuck", TTL: time.Hour}})
		begun := time.Now()
		var lost *work.LostError
		if err := <-cause; !errors.As(err, &lost) || lost.Loss != work.Superseded || !errors.Is(err, work.ErrStale) {
			t.Errorf("the cause is %v", err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("it took %s to notice", took)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if it := get(t, l, id); it.State != work.Waiting || it.Result != nil {
			t.Errorf("it is %s with %q", it.State, it.Result)
		}
		for range l.Effects(t.Context(), work.EffectQuery{}) {
			t.Error("a stale completion has an effect")
		}
	})
}

// TestFailuresEndAsTheHandlerSays: an error retries after a backoff. The
// wrapped errors bury the item, retry it later, or give it back.
func TestFailuresEndAsTheHandlerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		broken := errors.New("broken")
		for _, c := range []struct {
			err   error
			state work.State
			tries int
			wait  time.Duration
		}{
			{broken, work.Waiting, 1, work.BackoffLeast},
			{work.Final(broken), work.Dead, 1, 0},
			{work.RetryAfter(broken, 100*time.Hour), work.Waiting, 1, 100 * time.Hour},
			{work.ReleaseFor(broken, 100*time.Hour), work.Waiting, 0, 100 * time.Hour},
			{fmt.Errorf("wrapped: %w", work.Final(broken)), work.Dead, 1, 0},
			{croft.Final(broken), work.Dead, 1, 0},
			// The outer one counts.
			{work.Final(work.RetryAfter(broken, time.Hour)), work.Dead, 1, 0},
			{work.RetryAfter(work.Final(broken), 100*time.Hour), work.Waiting, 1, 100 * time.Hour},
			// Without an error of its own, a handler means the same.
			{work.Final(nil), work.Dead, 1, 0},
			{work.RetryAfter(nil, 100*time.Hour), work.Waiting, 1, 100 * time.Hour},
			{work.ReleaseFor(nil, 100*time.Hour), work.Waiting, 0, 100 * time.Hour},
		} {
			id := add(t, l, "q", 1, nil)[0]
			tried := make(chan time.Time, 1)
			w := start(l, one(func(context.Context, *work.Job) (work.Result, error) {
				tried <- time.Now()
				return work.Result{}, c.err
			}), nil)
			at := <-tried
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			it := get(t, l, id)
			if it.State != c.state || it.Attempts != c.tries || c.wait > 0 && it.Ready.Sub(at) < c.wait {
				t.Errorf("%v: it is %s after %d attempts, ready in %s", c.err, it.State, it.Attempts, it.Ready.Sub(at))
			}
			l.Apply(t.Context(), []work.Request{{Verb: work.Cancel, ID: id, Secret: tenure.NewSecret(), Actor: "test", Note: "over"}})
		}
	})
}

// TestGivingBackWithoutAReasonKeepsTheOneBefore: an operator still finds why
// the attempt before has failed.
func TestGivingBackWithoutAReasonKeepsTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		id := add(t, l, "q", 1, nil)[0]
		ends := make(chan error, 2)
		ends <- work.RetryAfter(errors.New("the disk is full"), 0)
		ends <- work.ReleaseFor(nil, time.Hour)
		w := start(l, one(func(context.Context, *work.Job) (work.Result, error) { return work.Result{}, <-ends }), nil)
		time.Sleep(time.Minute)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		it, err := l.Get(t.Context(), id)
		if err != nil || it.State != work.Waiting || it.Attempts != 1 || it.Error != "the disk is full" {
			t.Errorf("the item is %s after %d attempts, its error is %q, %v", it.State, it.Attempts, it.Error, err)
		}
	})
}

// TestRetryAfterNothingIsAtOnce: RetryAfter with 0 does not wait the backoff.
func TestRetryAfterNothingIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		add(t, l, "q", 1, nil)
		tried := make(chan time.Time, 2)
		w := start(l, one(func(_ context.Context, j *work.Job) (work.Result, error) {
			tried <- time.Now()
			if j.Item().Attempts == 1 {
				return work.Result{}, work.RetryAfter(errors.New("busy"), 0)
			}
			return work.Result{}, nil
		}), nil)
		first := <-tried
		if waited := (<-tried).Sub(first); waited >= work.BackoffLeast {
			t.Errorf("tried again after %s, want it at once", waited)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAPanicIsAFailure: a panic fails the attempt, not the worker.
func TestAPanicIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		ids := add(t, l, "q", 2, func(r *work.Request) { r.Limit = 1 })
		w := start(l, one(func(_ context.Context, j *work.Job) (work.Result, error) {
			if string(j.Payload()) == "0" {
				panic("boom")
			}
			return work.Result{}, nil
		}), nil)
		time.Sleep(time.Second)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if it := get(t, l, ids[0]); it.State != work.Dead || !strings.Contains(it.Error, "boom") {
			t.Errorf("it is %s: %s", it.State, it.Error)
		}
		if it := get(t, l, ids[1]); it.State != work.Done {
			t.Errorf("the other one is %s", it.State)
		}
	})
}

// TestDrainFinishesOrGivesBack: a handler that can finish in time completes its
// item. Another gives its item back, and that attempt does not count. No item
// is begun any more.
func TestDrainFinishesOrGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		ids := add(t, l, "q", 3, func(r *work.Request) { r.Priority = -int(r.Payload[0]) }) // in this order
		w := start(l, one(func(ctx context.Context, j *work.Job) (work.Result, error) {
			if string(j.Payload()) == "0" {
				time.Sleep(5 * time.Second)
				return work.Result{}, nil
			}
			if err := j.Save(ctx, []byte("half")); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if lost := (*work.LostError)(nil); !errors.As(context.Cause(ctx), &lost) || lost.Loss != work.Drained {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return work.Result{}, ctx.Err()
		}), &work.Options{Slots: 2, Drain: 10 * time.Second})
		time.Sleep(time.Second)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		states := []work.State{work.Done, work.Waiting, work.Waiting}
		for i, id := range ids {
			it := get(t, l, id)
			if it.State != states[i] {
				t.Errorf("item %d is %s", i, it.State)
			}
			if it.State == work.Waiting && it.Attempts != 0 {
				t.Errorf("item %d has used %d attempts", i, it.Attempts)
			}
		}
		if it := get(t, l, ids[1]); string(it.Checkpoint) != "half" {
			t.Errorf("the checkpoint is %q", it.Checkpoint)
		}
	})
}

// TestAHandlerThatDoesNotReturnIsLeftBehind: the worker ends, and gives the
// item back.
func TestAHandlerThatDoesNotReturnIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		id := add(t, l, "q", 1, nil)[0]
		stuck := make(chan struct{})
		w := start(l, one(func(context.Context, *work.Job) (work.Result, error) {
			<-stuck
			return work.Result{Body: []byte("late")}, nil
		}), nil)
		time.Sleep(time.Second)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if it := get(t, l, id); it.State != work.Waiting {
			t.Errorf("it is %s", it.State)
		}
		close(stuck)
	})
}

// TestTheNextOwnerBeginsWithTheCheckpoint: the second attempt sees the
// checkpoint that the failed one has saved.
func TestTheNextOwnerBeginsWithTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		id := add(t, l, "q", 1, nil)[0]
		w := start(l, one(func(ctx context.Context, j *work.Job) (work.Result, error) {
			if len(j.Checkpoint()) == 0 {
				if err := errors.Join(j.Report(ctx, "half"), j.Save(ctx, []byte("half"))); err != nil {
					t.Error(err)
				}
				return work.Result{}, errors.New("not today")
			}
			return work.Result{Body: j.Checkpoint()}, nil
		}), nil)
		time.Sleep(time.Minute)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if it := get(t, l, id); it.State != work.Done || string(it.Result) != "half" || it.Attempts != 2 {
			t.Errorf("it is %s with %q after %d attempts", it.State, it.Result, it.Attempts)
		}
	})
}

// TestAStalledHandlerLosesItsItem: a handler that reports nothing is not kept
// alive.
func TestAStalledHandlerLosesItsItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		add(t, l, "q", 1, nil)
		cause := make(chan error, 1)
		w := start(l, one(func(ctx context.Context, j *work.Job) (work.Result, error) {
			for range 10 {
				time.Sleep(time.Minute)
				if err := j.Report(ctx, "on it"); err != nil {
					t.Error(err)
				}
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return work.Result{}, ctx.Err()
		}), &work.Options{TTL: time.Minute, StallAfter: 2 * time.Minute})
		var lost *work.LostError
		if err := <-cause; !errors.As(err, &lost) || lost.Loss != work.Stalled {
			t.Errorf("the cause is %v", err)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestProgressByTheDeedKeepsAnItem: another process reports progress or saves a
// checkpoint with the deed, and the item stays alive. When that ends, the item
// is lost, the attempt has failed, and the next attempt begins.
func TestProgressByTheDeedKeepsAnItem(t *testing.T) {
	for verb, req := range map[string]work.Request{
		"report": {Verb: work.Report, Progress: "on it"}, "checkpoint": {Verb: work.Checkpoint, State: []byte("half")},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := mem.NewLedger(nil)
			id := add(t, l, "q", 1, nil)[0]
			cause := make(chan error, 1)
			w := start(l, one(func(ctx context.Context, j *work.Job) (work.Result, error) {
				if j.Item().Attempts > 1 {
					return work.Result{}, nil
				}
				defer func() { cause <- context.Cause(ctx) }()
				req.ID, req.Token, req.Secret = id, j.Deed().Token, j.Deed().Secret
				for range 100 { // far more than fits into a lease that is not renewed
					time.Sleep(11 * time.Second)
					if a := l.Apply(context.Background(), []work.Request{req})[0]; a.Err != nil || ctx.Err() != nil {
						t.Errorf("%s: %v in the middle: %v", verb, a.Err, context.Cause(ctx))
						return work.Result{}, ctx.Err()
					}
				}
				last := time.Now()
				<-ctx.Done()
				// Not before StallAfter, and not later than StallAfter, the
				// wait for the next look and a whole lease together.
				if took := time.Since(last); took < 15*time.Second || took > 15*time.Second+20*time.Second+54*time.Second {
					t.Errorf("%s: lost %s after the last", verb, took)
				}
				return work.Result{}, context.Cause(ctx)
			}), &work.Options{TTL: time.Minute, StallAfter: 15 * time.Second})
			var lost *work.LostError
			if err := <-cause; !errors.As(err, &lost) || lost.Loss != work.Stalled {
				t.Errorf("%s: the cause is %v", verb, err)
			}
			time.Sleep(time.Hour)
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			if it := get(t, l, id); it.State != work.Done || it.Attempts != 2 {
				t.Errorf("%s: it is %s after %d attempts", verb, it.State, it.Attempts)
			}
		})
	}
}

// TestAResultThatIsTooLargeIsAFailure: the failure says that the result was too
// large.
func TestAResultThatIsTooLargeIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		id := add(t, l, "q", 1, func(r *work.Request) { r.Limit = 1 })[0]
		w := start(l, one(func(context.Context, *work.Job) (work.Result, error) {
			return work.Result{Body: make([]byte, work.MaxPayload+1)}, nil
		}), nil)
		time.Sleep(time.Second)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if it := get(t, l, id); it.State != work.Dead || !strings.Contains(it.Error, "result") {
			t.Errorf("it is %s: %s", it.State, it.Error)
		}
	})
}

// TestAHandlerCompletesInItsOwnTransaction: what the handler returns after its
// commit changes nothing, not even an error.
func TestAHandlerCompletesInItsOwnTransaction(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := mem.NewLedger(nil)
			id := add(t, l, "q", 1, nil)[0]
			w := start(l, one(func(ctx context.Context, j *work.Job) (work.Result, error) {
				err := l.Within(ctx, func(ops work.Operations) error {
					return j.CompleteIn(ctx, ops, work.Result{Body: []byte("mine"), Effects: []work.Emission{{Name: "x"}}})
				})
				if err == nil && fails {
					err = errors.New("the answer to the commit was lost")
				}
				return work.Result{Body: []byte("not used")}, err
			}), nil)
			time.Sleep(time.Second)
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			if it := get(t, l, id); it.State != work.Done || string(it.Result) != "mine" {
				t.Errorf("it is %s with %q", it.State, it.Result)
			}
		})
	}
}

// lossy is a ledger that loses replies: the request takes effect, but its
// sender is not told.
type lossy struct {
	*mem.Ledger
	mu    sync.Mutex
	calls int
	down  bool // no call arrives at all
}

var errLost = errors.New("the reply was lost")

// loses says whether to lose the reply of this call, which is every other one,
// and whether the ledger is down.
func (l *lossy) loses() (lost, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	return l.calls%2 == 1, l.down
}

func (l *lossy) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	lost, down := l.loses()
	if down {
		return nil, store.Unknown(errLost)
	}
	items, err := l.Ledger.Claim(ctx, c)
	if lost {
		return nil, store.Unknown(errLost)
	}
	return items, err
}

func (l *lossy) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	lost, down := l.loses()
	if down {
		return work.FailedAnswers(len(requests), errLost)
	}
	answers := l.Ledger.Apply(ctx, requests)
	if lost {
		return work.FailedAnswers(len(requests), errLost)
	}
	return answers
}

// TestLostRepliesLoseNothing: every other reply of the ledger is lost. Still
// every item is done once, in one attempt.
func TestLostRepliesLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		ids := add(t, l, "q", 50, nil)
		w := start(&lossy{Ledger: l}, one(func(context.Context, *work.Job) (work.Result, error) {
			time.Sleep(time.Second)
			return work.Result{}, nil
		}), &work.Options{Slots: 4})
		time.Sleep(10 * time.Minute)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		for i, id := range ids {
			if it := get(t, l, id); it.State != work.Done || it.Attempts != 1 {
				t.Errorf("item %d is %s after %d attempts", i, it.State, it.Attempts)
			}
		}
	})
}

// TestAnUnreachableLedgerEndsTheContextInTime: the context ends before the
// ledger's deadline, when another worker may begin.
func TestAnUnreachableLedgerEndsTheContextInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lossy{Ledger: mem.NewLedger(nil), calls: 1}
		id := add(t, l.Ledger, "q", 1, nil)[0]
		ended := make(chan error, 1)
		w := start(l, one(func(ctx context.Context, _ *work.Job) (work.Result, error) {
			l.mu.Lock()
			l.down = true
			l.mu.Unlock()
			<-ctx.Done()
			if it := get(t, l.Ledger, id); it.Lapsed(time.Now()) {
				t.Error("the context ended after the ledger's deadline")
			}
			ended <- context.Cause(ctx)
			return work.Result{}, ctx.Err()
		}), &work.Options{TTL: time.Minute})
		var lost *work.LostError
		if err := <-ended; !errors.As(err, &lost) || lost.Loss != work.Expired {
			t.Errorf("the cause is %v", err)
		}
		if err := w.stop(); !errors.Is(err, work.ErrUnknown) {
			t.Errorf("the worker ended with %v, want unknown", err)
		}
	})
}

// TestBadInputEndsAtOnce: invalid input is refused at once.
func TestBadInputEndsAtOnce(t *testing.T) {
	l := mem.NewLedger(nil)
	ok := func(context.Context, *work.Job) (work.Result, error) { return work.Result{}, nil }
	for name, err := range map[string]error{
		"no queue":       work.Run(t.Context(), l, nil, nil),
		"a bad queue":    work.Run(t.Context(), l, map[string]work.Handler{"a//b": ok}, nil),
		"no handler":     work.Run(t.Context(), l, map[string]work.Handler{"q": nil}, nil),
		"no slots":       work.Run(t.Context(), l, one(ok), &work.Options{Slots: -1}),
		"a TTL too long": work.Run(t.Context(), l, one(ok), &work.Options{TTL: tenure.MaxTTL + 1}),
	} {
		if !errors.Is(err, work.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}
