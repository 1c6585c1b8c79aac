package croft

import (
	"context"
	"log/slog"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// emit tells the observer and the log. It is called without locks held.
func (c *Client) emit(e Event) {
	if c.o.Observe != nil {
		c.o.Observe(e)
	}
	if c.o.Logger == nil {
		return
	}
	level := e.Kind.level()
	if c.o.Logger.Enabled(context.Background(), level) {
		c.o.Logger.LogAttrs(context.Background(), level, string(e.Kind), e.attrs()...)
	}
}

// level is how loud an event is: what happens all the time is for debugging, what ends a lease or leaves something open is a warning.
func (k EventKind) level() slog.Level {
	switch k {
	case EventCall, EventRenewed:
		return slog.LevelDebug
	case EventRenewFailed, EventLost, EventReleaseLeft, EventRaiseRefused, EventUnknown, EventWorkFailed:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// attrs are the event's fields that are set.
func (e Event) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			attrs = append(attrs, slog.Int64(name, value))
		}
	}
	span := func(name string, value time.Duration) {
		if value != 0 {
			attrs = append(attrs, slog.Duration(name, value))
		}
	}
	text("key", e.Key)
	number("token", int64(e.Token))
	text("verb", string(e.Verb))
	text("outcome", string(e.Outcome))
	number("count", int64(e.Count))
	number("batch", int64(e.Batch))
	span("took", e.Took)
	span("wait", e.Wait)
	text("cause", string(e.Cause))
	span("margin", e.Margin)
	number("failures", int64(e.Failures))
	text("loss", string(e.Loss))
	span("held", e.Held)
	if e.Failed {
		attrs = append(attrs, slog.Bool("failed", true))
	}
	text("target", e.Target)
	if e.Err != nil {
		attrs = append(attrs, slog.String("err", e.Err.Error()))
	}
	return attrs
}

// report tells of one call of the store: one event for each verb and outcome in its batch, however many requests had it.
func (b *combiner) report(f flown) {
	type sort struct {
		verb    tenure.Verb
		outcome Outcome
	}
	counts := map[sort]int{}
	for i := range f.requests {
		counts[sort{f.requests[i].Verb, outcomeOf(f.answers[i].Err)}]++
	}
	for s, n := range counts {
		b.observe(Event{Kind: EventCall, Verb: s.verb, Outcome: s.outcome, Count: n, Batch: len(f.requests), Took: f.took})
	}
}
