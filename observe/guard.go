package observe

import (
	"context"
	"io"
	"log/slog"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// Write is one write at a guarded resource, and the guard's answer.
type Write struct {
	// Target names the resource as users do: by a path or a URL. The scheme of
	// a URL is the kind of guard in metrics.
	Target string
	Stamp  fence.Stamp
	Err    error // nil if the write was admitted
}

// Artifact returns an artifact that reports every write: to [Metrics.Write],
// [Traces.Write], [LogWrites], [NoteRefusals] or any other function. If a guard
// is called inside the caller's own transaction or request, call those
// functions directly.
func Artifact(a guard.Artifact, tell ...func(context.Context, Write)) guard.Artifact {
	return &artifact{a, tell}
}

type artifact struct {
	guard.Artifact
	tell []func(context.Context, Write)
}

func (a *artifact) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	receipt, err := a.Artifact.Write(ctx, stamp, r)
	for _, tell := range a.tell {
		tell(ctx, Write{Target: a.Target(), Stamp: stamp, Err: err})
	}
	return receipt, err
}

// Write counts a write, admitted or refused, by the namespace of its key and
// the kind of its target.
func (m *Metrics) Write(_ context.Context, w Write) {
	space, guard := m.spaces.of(w.Stamp.Key), kindOf(w.Target)
	m.writes.WithLabelValues(space, guard, outcomeOf(w.Err)).Inc()
	m.expect(space, guard)
}

// LogWrites returns a function that logs writes. The record names are stable:
// "write_admitted" at debug level, "write_refused" and "write_failed" as
// warnings.
func LogWrites(log *slog.Logger) func(context.Context, Write) {
	return func(ctx context.Context, w Write) {
		name, level := "write_refused", slog.LevelWarn
		outcome := outcomeOf(w.Err)
		switch outcome {
		case admitted:
			name, level = "write_admitted", slog.LevelDebug
		case failed:
			name = "write_failed"
		}
		if !log.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("target", w.Target), slog.String("key", w.Stamp.Key),
			slog.Int64("token", int64(w.Stamp.Token)), slog.String("outcome", outcome),
		}
		if w.Err != nil {
			attrs = append(attrs, slog.String("err", w.Err.Error()))
		}
		log.LogAttrs(ctx, level, name, attrs...)
	}
}

// NoteRefusals returns a function that notes refused writes in the client's
// store, where "croft inventory" and "croft watch" find them. See
// [croft.Client.Refused]. Gates with a client do so by themselves.
func NoteRefusals(c *croft.Client) func(context.Context, Write) {
	return func(_ context.Context, w Write) { c.Refused(w.Stamp, w.Target, w.Err) }
}
