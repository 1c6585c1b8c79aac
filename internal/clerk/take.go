package clerk

import (
	"context"
	"time"

	"github.com/croft-dev/croft/work"
)

// Take takes effects for delivery, under the dispatcher's mark. It calls due to
// lock and read the effects that are due at the ledger's time. If the
// dispatcher is refused, Take records the refusal and returns it as refused.
func Take(
	ctx context.Context, tx Tx, q work.Taking, due func(now time.Time) ([]work.Effect, error),
) (taken []work.Effect, refused, err error) {
	marks, err := tx.Marks(ctx, []string{q.Stamp.Key})
	if err != nil {
		return nil, nil, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, nil, err
	}
	was := marks[q.Stamp.Key]
	mark, refusal, refused := q.Admit(was, now)
	if refused != nil {
		if refusal != nil {
			err = tx.Record(ctx, []work.Refusal{*refusal})
		}
		return nil, refused, err
	}
	if mark != was {
		marks[q.Stamp.Key] = mark
		if err := tx.KeepMarks(ctx, marks); err != nil {
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
	return taken, nil, tx.UpdateEffects(ctx, taken)
}

// ever is earlier than all times in rows.
const ever = -1 << 62

// From converts the lower bound of a query to the form that rows keep. The zero
// time means no bound.
func From(t time.Time) int64 {
	if t.IsZero() {
		return ever
	}
	return t.UnixMicro()
}

// Cut is the pruning limit in microseconds: rows that ended at or before it may
// go. It is earlier than all times if d is Never.
func Cut(now time.Time, d time.Duration) int64 {
	if d == work.Never {
		return ever
	}
	return now.Add(-d).UnixMicro()
}
