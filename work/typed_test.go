package work_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

type page struct {
	URL   string `json:"url"`
	Depth int    `json:"depth"`
}

// finished waits until an item is done or dead.
func finished(t *testing.T, l work.Ledger, id work.ID) work.Item {
	t.Helper()
	for !get(t, l, id).State.Finished() {
		time.Sleep(time.Second)
	}
	return get(t, l, id)
}

// TestAHandlerGetsTheTypedPayload: Handle gives a handler the value that
// Enqueue was given, and JSON makes the result.
func TestAHandlerGetsTheTypedPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		typed, err := work.Enqueue(t.Context(), l, "pages", page{"https://example.org", 3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := work.Enqueue(t.Context(), l, "raw", []byte("not JSON"), nil)
		if err != nil {
			t.Fatal(err)
		}
		w := start(l, map[string]work.Handler{
			"pages": work.Handle(func(_ context.Context, _ *work.Job, p page) (work.Result, error) {
				return work.JSON(page{p.URL, p.Depth + 1}, work.Emission{Name: "mail"})
			}),
			"raw": work.Handle(func(_ context.Context, _ *work.Job, b []byte) (work.Result, error) {
				return work.Result{Body: b}, nil
			}),
		}, nil)
		if it := finished(t, l, typed.ID); it.State != work.Done ||
			string(it.Payload) != `{"url":"https://example.org","depth":3}` ||
			string(it.Result) != `{"url":"https://example.org","depth":4}` {
			t.Errorf("%s, payload %s, result %s", it.State, it.Payload, it.Result)
		}
		if it := finished(t, l, raw.ID); it.State != work.Done || string(it.Result) != "not JSON" {
			t.Errorf("%s, result %s", it.State, it.Result)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAPayloadThatCannotBeReadIsAFinalFailure: the item is dead after one
// attempt, its handler was not called, and its Error says why.
func TestAPayloadThatCannotBeReadIsAFinalFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		w := start(l, one(work.Handle(func(context.Context, *work.Job, page) (work.Result, error) {
			t.Error("the handler was called")
			return work.Result{}, nil
		})), nil)
		for _, payload := range []string{"", "{", `{"depth": "three"}`, `{} {}`, "a page"} {
			added, err := work.Enqueue(t.Context(), l, "q", []byte(payload), nil)
			if err != nil {
				t.Fatal(err)
			}
			it := finished(t, l, added.ID)
			if it.State != work.Dead || it.Attempts != 1 || !strings.Contains(it.Error, "cannot be read as work_test.page") {
				t.Errorf("%q: %s after %d attempts: %s", payload, it.State, it.Attempts, it.Error)
			}
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAResultWithoutJSONIsAFinalFailure: a value that has no JSON form is not
// tried again.
func TestAResultWithoutJSONIsAFinalFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mem.NewLedger(nil)
		id := add(t, l, "q", 1, nil)[0]
		w := start(l, one(func(context.Context, *work.Job) (work.Result, error) { return work.JSON(math.NaN()) }), nil)
		if it := finished(t, l, id); it.State != work.Dead || it.Attempts != 1 {
			t.Errorf("%s after %d attempts", it.State, it.Attempts)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestEnqueueReturnsTheLedgersError: no item is added silently twice, and none
// is silently not added.
func TestEnqueueReturnsTheLedgersError(t *testing.T) {
	ctx, l := t.Context(), mem.NewLedger(nil)
	o := &work.ItemOptions{Unique: "example.org, today", Priority: 2, Limit: 4, Delay: time.Hour, Guards: []string{"/out/{id}"}}
	first, err := work.Enqueue(ctx, l, "pages", page{URL: "a"}, o)
	if err != nil {
		t.Fatal(err)
	}
	if it := get(t, l, first.ID); it.Priority != 2 || it.Limit != 4 || it.Unique != o.Unique ||
		it.Ready.Sub(it.Created) != time.Hour || len(it.Guards) != 1 || it.Guards[0] != "/out/"+string(it.ID) {
		t.Errorf("the options are not in %+v", it)
	}
	if again, err := work.Enqueue(ctx, l, "pages", page{URL: "a"}, o); err != nil || again.ID != first.ID {
		t.Errorf("the same again is item %s, %v; want %s", again.ID, err, first.ID)
	}
	if _, err := work.Enqueue(ctx, l, "pages", page{URL: "b"}, o); !errors.Is(err, work.ErrConflict) {
		t.Errorf("other content under the same key: %v", err)
	}
	id := work.NewID()
	for range 2 {
		if it, err := work.Enqueue(ctx, l, "pages", 1, &work.ItemOptions{ID: id}); err != nil || it.ID != id {
			t.Errorf("item %s, %v; want %s", it.ID, err, id)
		}
	}
	for name, err := range map[string]error{
		"a payload without JSON": enqueue(ctx, l, "pages", make(chan int)),
		"a bad queue":            enqueue(ctx, l, "a//b", 1),
	} {
		if !errors.Is(err, work.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if err := enqueue(ctx, silent{l}, "pages", 1); !errors.Is(err, work.ErrUnknown) {
		t.Errorf("a ledger that does not answer: %v, want unknown", err)
	}
}

func enqueue[T any](ctx context.Context, ops work.Operations, queue string, payload T) error {
	_, err := work.Enqueue(ctx, ops, queue, payload, nil)
	return err
}

// silent is a ledger that cannot be reached.
type silent struct{ work.Ledger }

func (silent) Apply(_ context.Context, requests []work.Request) []work.Answer {
	return work.FailedAnswers(len(requests), store.Unknown(errors.New("no connection")))
}
