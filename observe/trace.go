package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
)

// Traces makes one span of every lease, from the request for it to its end. It
// also makes a span of every refused write, with a link to the span of its
// lease. Its methods are safe for concurrent use.
type Traces struct {
	tracer trace.Tracer
	mu     sync.Mutex
	spans  map[lease]trace.Span
	past   []past // the last spans that ended, for writes that come late
	next   int
}

// past is what remains of a span that has ended. If the span is not valid, the
// end of the lease was told before its beginning.
type past struct {
	lease lease
	span  trace.SpanContext
}

// pasts is how many ended spans are remembered.
const pasts = 256

// NewTraces makes spans with a tracer of the provider.
func NewTraces(p trace.TracerProvider) *Traces {
	return &Traces{
		tracer: p.Tracer("github.com/croft-dev/croft/observe"), spans: map[lease]trace.Span{},
		past: make([]past, pasts),
	}
}

// Observe takes one event. Set croft.Options.Observe to it, or use [All] to
// have metrics as well.
func (t *Traces) Observe(e croft.Event) {
	l := lease{e.Key, e.Token}
	switch e.Kind {
	case croft.EventAcquired, croft.EventResumed:
		t.begin(l, e)
	case croft.EventRenewFailed:
		t.note(l, "renew_failed", attribute.Int("croft.failures", e.Failures),
			attribute.String("croft.margin", e.Margin.String()))
	case croft.EventRaised:
		t.note(l, "raised", attribute.String("croft.target", e.Target))
	case croft.EventRaiseRefused:
		t.note(l, "raise_refused", attribute.String("croft.target", e.Target),
			attribute.String("croft.error", errText(e.Err)))
	case croft.EventReleased:
		t.end(l, "released", nil)
	case croft.EventReleaseLeft:
		t.end(l, "release_left", e.Err)
	case croft.EventLost:
		t.end(l, string(e.Loss), e.Err)
	}
}

func (t *Traces) begin(l lease, e croft.Event) {
	_, span := t.tracer.Start(context.Background(), "croft.lease",
		trace.WithTimestamp(time.Now().Add(-e.Wait)), trace.WithAttributes(
			attribute.String("croft.key", e.Key), attribute.Int64("croft.token", int64(e.Token)),
			attribute.String("croft.cause", string(e.Cause)),
			attribute.String("croft.wait", e.Wait.String()), attribute.String("croft.ttl", e.TTL.String()),
		))
	span.AddEvent(string(e.Kind))
	t.mu.Lock()
	over := slices.ContainsFunc(t.past, func(p past) bool { return p.lease == l && !p.span.IsValid() })
	t.spans[l] = span
	t.mu.Unlock()
	if over { // another goroutine has told its end first
		t.end(l, "lost", nil)
	}
}

func (t *Traces) note(l lease, name string, attrs ...attribute.KeyValue) {
	t.mu.Lock()
	span := t.spans[l]
	t.mu.Unlock()
	if span != nil {
		span.AddEvent(name, trace.WithAttributes(attrs...))
	}
}

func (t *Traces) end(l lease, how string, err error) {
	t.mu.Lock()
	span := t.spans[l]
	ended := past{lease: l}
	if span != nil {
		delete(t.spans, l)
		ended.span = span.SpanContext()
	}
	if span != nil || !slices.ContainsFunc(t.past, func(p past) bool { return p.lease == l }) {
		t.past[t.next] = ended
		t.next = (t.next + 1) % pasts
	}
	t.mu.Unlock()
	if span == nil {
		return
	}
	span.SetAttributes(attribute.String("croft.end", how))
	if how != "released" {
		span.SetStatus(codes.Error, how)
		if err != nil {
			span.RecordError(err)
		}
	}
	span.End()
}

// Write makes a span of a refused write. It makes none of an admitted write:
// the caller traces that itself.
func (t *Traces) Write(ctx context.Context, w Write) {
	outcome := outcomeOf(w.Err)
	if outcome == admitted {
		return
	}
	var links []trace.Link
	if at := t.find(w.Stamp); at.IsValid() {
		links = append(links, trace.Link{SpanContext: at})
	}
	_, span := t.tracer.Start(ctx, "croft.write", trace.WithLinks(links...), trace.WithAttributes(
		attribute.String("croft.key", w.Stamp.Key), attribute.Int64("croft.token", int64(w.Stamp.Token)),
		attribute.String("croft.target", w.Target), attribute.String("croft.outcome", outcome),
	))
	span.RecordError(w.Err)
	span.SetStatus(codes.Error, outcome)
	span.End()
}

// find returns the span of the lease to which a stamp belongs, if this process
// has held it.
func (t *Traces) find(s fence.Stamp) trace.SpanContext {
	l := lease{s.Key, s.Token}
	t.mu.Lock()
	defer t.mu.Unlock()
	if span := t.spans[l]; span != nil {
		return span.SpanContext()
	}
	for _, p := range t.past {
		if p.lease == l && p.span.IsValid() {
			return p.span
		}
	}
	return trace.SpanContext{}
}

// All returns an observer that passes every event to several observers.
func All(observers ...func(croft.Event)) func(croft.Event) {
	return func(e croft.Event) {
		for _, observe := range observers {
			observe(e)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
