package postgres

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Take takes effects for delivery, under the dispatcher's mark.
func (l *Ledger) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	var taken []work.Effect
	var refused error
	err := l.within(ctx, func(d *desk) error {
		taken, refused = nil, nil
		marks, err := d.Marks(ctx, []string{q.Stamp.Key})
		if err != nil {
			return err
		}
		now, err := d.Now(ctx)
		if err != nil {
			return err
		}
		was := marks[q.Stamp.Key]
		mark, refusal, err := q.Admit(was, now)
		if err != nil {
			refused = err
			if refusal == nil {
				return nil
			}
			return d.Record(ctx, []work.Refusal{*refusal})
		}
		if mark != was {
			marks[q.Stamp.Key] = mark
			if err := d.KeepMarks(ctx, marks); err != nil {
				return err
			}
		}
		if q.Limit == 0 {
			return nil
		}
		rows, err := d.session.texts(ctx, l.sql.workTake, now.UnixMicro(), maybe(q.To), q.Limit)
		if err != nil {
			return err
		}
		found, err := readEffects(rows)
		if err != nil {
			return err
		}
		for _, e := range found {
			taken = append(taken, work.Take(e, q, now))
		}
		if len(taken) == 0 {
			return nil
		}
		return d.UpdateEffects(ctx, taken)
	})
	switch {
	case err != nil:
		return nil, store.Unknown(explain(ctx, err))
	case refused != nil:
		return nil, refused
	}
	return taken, nil
}

// Settle carries out settlements in one transaction.
func (l *Ledger) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	answers := make([]work.EffectAnswer, len(settlements))
	todo := clerk.CheckedSettlements(settlements, answers)
	if len(todo) == 0 {
		return answers
	}
	err := l.usable(ctx)
	if err == nil {
		err = l.within(ctx, func(d *desk) error {
			changed, err := clerk.Settle(ctx, d, settlements, answers, todo)
			if err != nil {
				return err
			}
			return d.tell(ctx, l.sql.workWake, changed)
		})
		if err != nil {
			err = explain(ctx, err)
		}
	}
	if err != nil {
		if !errors.Is(err, store.ErrUnknown) {
			err = store.Unknown(err)
		}
		for _, i := range todo {
			answers[i] = work.EffectAnswer{Err: err}
		}
	}
	return answers
}
