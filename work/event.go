package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/croft-dev/croft/fence"
)

// EventKind says what happened in a worker. Log records have the same names.
// The names are stable.
type EventKind string

// The kinds of events. Each comment names the fields that are set, besides
// those that identify the attempt.
const (
	// EventClaimed says that a claim got Count items, and took Took.
	EventClaimed EventKind = "claimed"
	// EventClaimFailed says that a claim got no answer, or was refused. Err
	// says why.
	EventClaimFailed EventKind = "claim_failed"
	// EventStarted says that a handler began. Waited is how long the item had
	// been ready.
	EventStarted EventKind = "started"
	// EventUnfenced says that the fence could not be raised at a guard of the
	// item, so that its handler did not begin. The item is given back. Err says
	// why, and what to do.
	EventUnfenced EventKind = "unfenced"
	// EventCompleted says that the ledger has the result. Took is the time from
	// the handler's start to the ledger's answer. Repeated says that the ledger
	// had the result already.
	EventCompleted EventKind = "completed"
	// EventFailed says that an attempt failed, and the ledger knows. State is
	// the item's state now, and Err the failure.
	EventFailed EventKind = "failed"
	// EventReleased says that an item was given back.
	EventReleased EventKind = "released"
	// EventLost says that a handler was told to stop. Loss and Err say why.
	EventLost EventKind = "lost"
	// EventRefused says that the ledger refused the request that ends an
	// attempt. Err says why.
	EventRefused EventKind = "refused"
	// EventBeat says that the ledger answered Count heartbeats.
	EventBeat EventKind = "beat"
	// EventBeatFailed says that Count heartbeats got no answer. Err says why.
	EventBeatFailed EventKind = "beat_failed"
	// EventUnknown says that Count requests that end attempts got no answer,
	// and are sent again. Err says why.
	EventUnknown EventKind = "unknown"
	// EventAbandoned says that a handler did not return in time during
	// shutdown.
	EventAbandoned EventKind = "abandoned"
	// EventPaused says that the worker's timer was late by Took, a tenth of a
	// second or more. The process was stopped or starved, or the machine was
	// suspended.
	EventPaused EventKind = "paused"
)

// Event is one thing that happened in a worker. Fields that its kind does not
// use are zero.
type Event struct {
	Kind     EventKind
	Queue    string
	Item     ID
	Token    fence.Token   // of the attempt
	Attempt  int           // its number
	State    State         // of the item, after the event
	Loss     Loss          // why the handler must stop
	Count    int           // of items, heartbeats or requests
	Waited   time.Duration // how long the item had been ready
	Took     time.Duration
	Repeated bool
	Err      error
}

// level is the log level of an event.
func (k EventKind) level() slog.Level {
	switch k {
	case EventClaimed, EventStarted, EventBeat:
		return slog.LevelDebug
	case EventClaimFailed, EventLost, EventRefused, EventBeatFailed, EventUnknown, EventAbandoned, EventFailed,
		EventUnfenced:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// emit passes an event to the observer and the log.
func (o *Options) emit(e Event) {
	if o.Observe != nil {
		o.Observe(e)
	}
	level := e.Kind.level()
	if o.Logger == nil || !o.Logger.Enabled(context.Background(), level) {
		return
	}
	var attrs []slog.Attr
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	text("queue", e.Queue)
	text("item", string(e.Item))
	if e.Token != 0 {
		attrs = append(attrs, slog.Int64("token", int64(e.Token)), slog.Int("attempt", e.Attempt))
	}
	text("state", string(e.State))
	text("loss", string(e.Loss))
	if e.Count != 0 {
		attrs = append(attrs, slog.Int("count", e.Count))
	}
	if e.Took != 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	o.Logger.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}
