package clerk

import (
	"context"
	"time"

	"github.com/croft-dev/croft/work"
)

// Take takes effects for delivery under the dispatcher's mark: those that due finds, locked, at the ledger's time. It returns them, or why the dispatcher was refused, which is recorded.
func Take(ctx context.Context, desk Desk, q work.Taking, due func(now time.Time) ([]work.Effect, error)) (taken []work.Effect, refused, err error) {
	marks, err := desk.Marks(ctx, []string{q.Stamp.Key})
	if err != nil {
		return nil, nil, err
	}
	now, err := desk.Now(ctx)
	if err != nil {
		return nil, nil, err
	}
	was := marks[q.Stamp.Key]
	mark, refusal, refused := q.Admit(was, now)
	if refused != nil {
		if refusal != nil {
			err = desk.Record(ctx, []work.Refusal{*refusal})
		}
		return nil, refused, err
	}
	if mark != was {
		marks[q.Stamp.Key] = mark
		if err := desk.KeepMarks(ctx, marks); err != nil {
			return nil, nil, err
		}
	}
	if q.Limit == 0 {
		return nil, nil, nil
	}
	found, err := due(now)
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	for _, e := range found {
		taken = append(taken, work.Take(e, q, now))
	}
	return taken, nil, desk.UpdateEffects(ctx, taken)
}

// ever is before all times that rows keep.
const ever = -1 << 62

// From is, as rows keep times, when what is asked for begins: ever if nothing is said.
func From(t time.Time) int64 {
	if t.IsZero() {
		return ever
	}
	return t.UnixMicro()
}

// Cut is, as rows keep times, the moment at or before which something that is kept for d must have ended to be forgotten at now: before all times if it is kept for ever.
func Cut(now time.Time, d time.Duration) int64 { return From(work.Cutoff(now, d)) }
