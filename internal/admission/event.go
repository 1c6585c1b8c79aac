package admission

import (
	"context"
	"log/slog"

	"github.com/croft-dev/croft/guard/gate"
)

// Emit tells of an event.
func (g *Gate) Emit(e gate.Event) {
	if g.Options.Observe != nil {
		g.Options.Observe(e)
	}
	if g.Options.Logger == nil {
		return
	}
	level := slog.LevelDebug
	switch e.Kind {
	case gate.Refused, gate.Observed, gate.Unsure, gate.InDoubt, gate.Closed, gate.ReadFailed:
		level = slog.LevelWarn
	case gate.Opened, gate.Taken, gate.Left:
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
	g.Options.Logger.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}
