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

// Traces makes one span of every lease, from the moment it was asked for to its end, and a span of every refused write, with a link to the span of the lease it was made
// under. Its methods are safe for concurrent use.
type Traces struct {
	tracer trace.Tracer
	mu     sync.Mutex
	spans  map[lease]trace.Span
	past   []past // the last that have ended, for writes that come late
	next   int
}

// past is what is left of a span to link to.
type past struct {
	lease lease
	span  trace.SpanContext
}

// pasts is how many spans that have ended are remembered.
const pasts = 256

// NewTraces makes spans with a provider's tracer.
func NewTraces(p trace.TracerProvider) *Traces {
	return &Traces{tracer: p.Tracer("github.com/croft-dev/croft/observe"), spans: map[lease]trace.Span{}, past: make([]past, pasts)}
}

// Observe takes one event. It is what croft.Options.Observe is set to; use [All] to have metrics as well.
func (t *Traces) Observe(e croft.Event) {
	l := lease{e.Key, e.Token}
	switch e.Kind {
	case croft.EventAcquired, croft.EventResumed:
		t.begin(l, e)
	case croft.EventRenewFailed:
		t.note(l, "renew_failed", attribute.Int("croft.failures", e.Failures), attribute.String("croft.margin", e.Margin.String()))
	case croft.EventRaised:
		t.note(l, "raised", attribute.String("croft.target", e.Target))
	case croft.EventRaiseRefused:
		t.note(l, "raise_refused", attribute.String("croft.target", e.Target), attribute.String("croft.error", errText(e.Err)))
	case croft.EventReleased:
		t.end(l, "released", nil)
	case croft.EventReleaseLeft:
		t.end(l, "release_left", e.Err)
	case croft.EventLost:
		t.end(l, string(e.Loss), e.Err)
	}
}

func (t *Traces) begin(l lease, e croft.Event) {
	_, span := t.tracer.Start(context.Background(), "croft.lease", trace.WithTimestamp(time.Now().Add(-e.Wait)), trace.WithAttributes(
		attribute.String("croft.key", e.Key), attribute.Int64("croft.token", int64(e.Token)), attribute.String("croft.cause", string(e.Cause)),
		attribute.String("croft.wait", e.Wait.String()), attribute.String("croft.ttl", e.TTL.String()),
	))
	span.AddEvent(string(e.Kind))
	t.mu.Lock()
	over := slices.ContainsFunc(t.past, func(p past) bool { return p.lease == l && !p.span.IsValid() })
	t.spans[l] = span
	t.mu.Unlock()
	if over { // its end was told first, by another goroutine
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

// Write makes a span of a refused write; an admitted one is the caller's own to trace.
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

// find is the span of the lease that a stamp was made under, if this process has held it.
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

// All tells several observers of every event.
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
