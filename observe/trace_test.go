package observe

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/guardtest"
)

// TestALeaseIsASpanAndARefusedWriteLinksToIt: the link is there even if the
// lease is over by then.
func TestALeaseIsASpanAndARefusedWriteLinksToIt(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	traces := NewTraces(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))
	var events atomic.Int64
	c := croft.New(mem.New(nil), &croft.Options{Observe: All(traces.Observe, func(croft.Event) { events.Add(1) })})
	defer c.Close()
	ctx := t.Context()
	file := Artifact(&guardtest.Memory{}, traces.Write)

	old, err := c.Acquire(ctx, "orders/one", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Release(ctx); err != nil {
		t.Fatal(err)
	}
	next, err := c.Acquire(ctx, "orders/one", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(ctx, next.Stamp(), strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(ctx, old.Stamp(), strings.NewReader("old")); !errors.Is(err, fence.ErrStale) {
		t.Fatal(err)
	}
	if _, err := c.Takeover(ctx, "orders/one", croft.ByHand{Note: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := next.Release(ctx); !errors.Is(err, croft.ErrNotOwned) {
		t.Fatal(err)
	}

	spans := recorder.Ended()
	var names []string
	for _, s := range spans {
		names = append(names, s.Name())
	}
	if got := strings.Join(names, " "); got != "croft.lease croft.write croft.lease" {
		t.Fatalf("spans %q", got)
	}
	first, write, lost := spans[0], spans[1], spans[2]
	if links := write.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != first.SpanContext().SpanID() {
		t.Errorf("the refused write links to %v, want the span of the lease it was made under", links)
	}
	if first.Status().Code.String() == "Error" || lost.Status().Code.String() != "Error" || write.Status().Description != "stale" {
		t.Errorf("the states are %v, %v and %v", first.Status(), write.Status(), lost.Status())
	}
	if events.Load() == 0 {
		t.Error("the other observer was told nothing")
	}
	if len(traces.spans) != 0 {
		t.Errorf("%d spans are still open", len(traces.spans))
	}
}

// TestALateWriteBeyondMemoryHasNoLink: only the last 256 leases that ended are
// remembered.
func TestALateWriteBeyondMemoryHasNoLink(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	traces := NewTraces(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))
	for token := fence.Token(1); token <= pasts+1; token++ {
		traces.Observe(croft.Event{Kind: croft.EventAcquired, Key: "a/b", Token: token, Wait: time.Second})
		traces.Observe(croft.Event{Kind: croft.EventReleased, Key: "a/b", Token: token})
	}
	if traces.find(fence.Stamp{Key: "a/b", Token: 1}).IsValid() || !traces.find(fence.Stamp{Key: "a/b", Token: 2}).IsValid() {
		t.Errorf("want the last %d remembered, and no more", pasts)
	}
	if got := recorder.Ended()[0]; got.EndTime().Sub(got.StartTime()) < time.Second {
		t.Error("the span does not begin when the lease was asked for")
	}
}

func TestWritesAreLoggedUnderTheirNames(t *testing.T) {
	var out strings.Builder
	log := LogWrites(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	stamp := fence.Stamp{Key: "a/b", Token: 7}
	log(t.Context(), Write{Target: "out.json", Stamp: stamp})
	log(t.Context(), Write{Target: "out.json", Stamp: stamp, Err: fence.ErrStale})
	log(t.Context(), Write{Target: "out.json", Stamp: stamp, Err: errors.New("disk full")})
	for _, want := range []string{
		"level=DEBUG msg=write_admitted target=out.json key=a/b token=7 outcome=admitted\n",
		"level=WARN msg=write_refused target=out.json key=a/b token=7 outcome=stale err=",
		"level=WARN msg=write_failed target=out.json key=a/b token=7 outcome=error err=\"disk full\"\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, out.String())
		}
	}
}

// TestALeaseWhoseEndIsToldFirstHasNoOpenSpan: events come from several
// goroutines.
func TestALeaseWhoseEndIsToldFirstHasNoOpenSpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	traces := NewTraces(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))
	for _, kind := range []croft.EventKind{croft.EventLost, croft.EventAcquired, croft.EventReleaseLeft} {
		traces.Observe(croft.Event{Kind: kind, Key: "a/b", Token: 1})
	}
	if len(traces.spans) != 0 || len(recorder.Ended()) != 1 {
		t.Errorf("%d spans are open, %d have ended; want none and one", len(traces.spans), len(recorder.Ended()))
	}
}
