package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/croft-dev/croft/fence"
)

// EventKind names what happened in a worker. The names are also those of the log records, and stay as they are.
type EventKind string

// The kinds of events.
const (
	EventClaimed     EventKind = "claimed"      // a claim got items: Count, Took
	EventClaimFailed EventKind = "claim_failed" // a claim had no answer: Err
	EventStarted     EventKind = "started"      // a handler began: Waited is how long the item had been ready
	EventCompleted   EventKind = "completed"    // the ledger has the result: Took is how long the handler ran. Repeated: it had it already
	EventFailed      EventKind = "failed"       // an attempt failed, and the ledger knows: State says what became of the item, Err why
	EventReleased    EventKind = "released"     // an item was given back
	EventLost        EventKind = "lost"         // a handler was told to stop: Loss, Err
	EventRefused     EventKind = "refused"      // the ledger refused what an attempt ended with: Err
	EventBeat        EventKind = "beat"         // heartbeats had an answer: Count
	EventBeatFailed  EventKind = "beat_failed"  // heartbeats had none: Count, Err
	EventUnknown     EventKind = "unknown"      // the end of an attempt had no answer, and is sent again: Err
	EventAbandoned   EventKind = "abandoned"    // a handler did not return in time at the end
)

// Event is one thing that happened in a worker. Fields that do not concern its kind are zero.
type Event struct {
	Kind     EventKind
	Queue    string
	Item     ID
	Token    fence.Token
	Attempt  int
	State    State
	Loss     Loss
	Count    int
	Waited   time.Duration
	Took     time.Duration
	Repeated bool
	Err      error
}

// level is how loud an event is.
func (k EventKind) level() slog.Level {
	switch k {
	case EventClaimed, EventStarted, EventBeat:
		return slog.LevelDebug
	case EventClaimFailed, EventLost, EventRefused, EventBeatFailed, EventUnknown, EventAbandoned, EventFailed:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// emit tells the observer and the log.
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
