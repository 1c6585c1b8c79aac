package observe

import (
	"cmp"
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
	// Refusal says why an admitted write would have been refused, if the guard
	// only observes. See [guard.WriteAnyway].
	Refusal error
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
// the kind of its target. A write that was let in although it would have been
// refused is admitted, and is also counted by the reason.
func (m *Metrics) Write(_ context.Context, w Write) {
	space, guard := m.spaces.of(w.Stamp.Key), kindOf(w.Target)
	m.writes.WithLabelValues(space, guard, outcomeOf(w.Err)).Inc()
	if w.Refusal != nil && w.Err == nil {
		m.observed.WithLabelValues(space, guard, outcomeOf(w.Refusal)).Inc()
	}
	m.expect(space, guard)
}

// LogWrites returns a function that logs writes. The record names are stable:
// "write_admitted" at debug level, "write_refused", "write_observed" and
// "write_failed" as warnings.
func LogWrites(log *slog.Logger) func(context.Context, Write) {
	return func(ctx context.Context, w Write) {
		name, level := "write_refused", slog.LevelWarn
		outcome := outcomeOf(w.Err)
		switch {
		case outcome == admitted && w.Refusal != nil:
			name, outcome = "write_observed", outcomeOf(w.Refusal)
		case outcome == admitted:
			name, level = "write_admitted", slog.LevelDebug
		case outcome == failed:
			name = "write_failed"
		}
		if !log.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("target", w.Target), slog.String("key", w.Stamp.Key),
			slog.Int64("token", int64(w.Stamp.Token)), slog.String("outcome", outcome),
		}
		if err := cmp.Or(w.Err, w.Refusal); err != nil {
			attrs = append(attrs, slog.String("err", err.Error()))
		}
		log.LogAttrs(ctx, level, name, attrs...)
	}
}

// NoteRefusals returns a function that notes refused writes in the client's
// store, where "croft inventory" and "croft watch" find them, and those that
// would have been refused. See [croft.Client.Refused] and [croft.Client.LetIn].
// Gates with a client do so by themselves.
func NoteRefusals(c *croft.Client) func(context.Context, Write) {
	return func(_ context.Context, w Write) {
		c.Refused(w.Stamp, w.Target, w.Err)
		if w.Err == nil {
			c.LetIn(w.Stamp, w.Target, w.Refusal)
		}
	}
}
