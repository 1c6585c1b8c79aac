package croft

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/croft-dev/croft/internal/engine"
)

// emit passes an event to the observer and the log. No lock is held.
func (c *Client) emit(e Event) {
	if c.o.Observe != nil {
		c.observe(e)
	}
	if c.o.Logger == nil {
		return
	}
	level := e.Kind.level()
	if c.o.Logger.Enabled(context.Background(), level) {
		c.o.Logger.LogAttrs(context.Background(), level, string(e.Kind), e.attrs()...)
	}
}

// observe calls the observer. If that panics, the panic is logged: it must not
// end the lease's work.
func (c *Client) observe(e Event) {
	defer func() {
		if p := recover(); p != nil && c.o.Logger != nil {
			c.o.Logger.Error("observe_panicked", "event", string(e.Kind), "panic", fmt.Sprint(p))
		}
	}()
	c.o.Observe(e)
}

// eventOf converts an event of the engine.
func eventOf(e engine.Event) Event {
	return Event{
		Kind: EventKind(e.Kind), Key: e.Key, Token: e.Token, Verb: e.Verb, Outcome: Outcome(e.Outcome),
		Wait: e.Wait, Cause: e.Cause, TTL: e.TTL, Margin: e.Margin, Idle: e.Idle, Failures: e.Failures,
		Loss: Loss(e.Loss), Failed: e.Failed, Held: e.Held, Err: e.Err,
		Namespace: e.Namespace, Count: e.Count, Batch: e.Batch, Took: e.Took,
	}
}

// level returns the log level of an event. Frequent events are for debugging.
// Events that end a lease or leave something open are warnings.
func (k EventKind) level() slog.Level {
	switch k {
	case EventCall, EventRenewed, EventReported:
		return slog.LevelDebug
	case EventRenewFailed, EventLost, EventReleaseLeft, EventRaiseRefused, EventUnknown, EventWorkFailed:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// attrs returns the fields that are set as log attributes.
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
	text("namespace", e.Namespace)
	text("verb", string(e.Verb))
	text("outcome", string(e.Outcome))
	number("count", int64(e.Count))
	number("batch", int64(e.Batch))
	span("took", e.Took)
	span("wait", e.Wait)
	text("cause", string(e.Cause))
	span("ttl", e.TTL)
	span("margin", e.Margin)
	span("idle", e.Idle)
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

// observed reports whether somebody wants the events.
func (c *Client) observed() bool { return c.o.Observe != nil || c.o.Logger != nil }
