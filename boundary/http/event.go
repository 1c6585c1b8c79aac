package httpfence

import (
	"context"
	"log/slog"
	"time"

	"github.com/croft-dev/croft/fence"
)

// EventKind names what happened at a gate. The names are also those of the log records, and stay as they are.
type EventKind string

// The kinds of events.
const (
	Admitted EventKind = "write_admitted"  // a write was let in: Method, Key, Token
	Refused  EventKind = "write_refused"   // a write was not, or was and could not be sent (Status 502): Method, Code, Status, Err; Key and Token if it is stamped
	InDoubt  EventKind = "write_in_doubt"  // a write was sent and its outcome is not known: Method, Key, Token, Err
	Answered EventKind = "write_answered"  // a write was answered by the service: Method, Key, Token, Status, Took
	Closed   EventKind = "resource_closed" // nothing is let in for a while: For, Err
	Opened   EventKind = "resource_opened" // and now it is again
	Taken    EventKind = "resource_taken"  // this gate is the only one of the resource from now on: Token of its own lease
	Left     EventKind = "resource_left"   // and now it is not any more
)

// Event is one thing that happened at a gate. Fields that do not concern its kind are zero.
type Event struct {
	Kind     EventKind
	Resource string
	Method   string
	Key      string
	Token    fence.Token
	Status   int
	Code     string
	Took     time.Duration
	For      time.Duration // croft.Forever: until an operator opens it
	Err      error
}

func (g *Gate) emit(e Event) {
	if g.o.Observe != nil {
		g.o.Observe(e)
	}
	if g.o.Logger == nil {
		return
	}
	level := slog.LevelDebug
	switch e.Kind {
	case Refused, InDoubt, Closed:
		level = slog.LevelWarn
	case Opened, Taken, Left:
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{slog.String("resource", e.Resource)}
	for _, text := range [][2]string{{"method", e.Method}, {"key", e.Key}, {"code", e.Code}} {
		if text[1] != "" {
			attrs = append(attrs, slog.String(text[0], text[1]))
		}
	}
	if e.Token != 0 {
		attrs = append(attrs, slog.Int64("token", int64(e.Token)))
	}
	if e.Status != 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	if e.Took != 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.For != 0 {
		attrs = append(attrs, slog.Duration("for", e.For))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	g.o.Logger.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}
