package postgres

import (
	"context"
	"time"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Take takes effects for delivery, under the dispatcher's mark. If it finds
// fewer than the limit and a worker here waits for the outbox, it arms the
// outbox: the next change notifies.
func (l *Ledger) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	taken, err := l.take(ctx, q)
	if err != nil || len(taken) >= q.Limit || !l.listener.listens("") {
		return taken, err
	}
	armed, err := l.pool.Exec(ctx, l.sql.workArm, list([]string{""}))
	if err != nil || armed.RowsAffected() == 0 || len(taken) > 0 {
		return taken, nil // a worker that gets no hint polls
	}
	return l.take(ctx, q) // effects written before the outbox was armed told nobody
}

func (l *Ledger) take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	var taken []work.Effect
	var refused error
	err := l.within(ctx, l.lockWait, func(tx *ledgerTx) (err error) {
		taken, refused, err = clerk.Take(ctx, tx, q, func(now time.Time) ([]work.Effect, error) {
			if _, err := tx.session.exec(ctx, l.sql.workByIndex); err != nil {
				return nil, err
			}
			if q.Ordered {
				if _, err := tx.session.texts(ctx, l.sql.workLineEnter, q.To[0]); err != nil {
					return nil, err
				}
			}
			text, args := l.sql.taking(q, now.UnixMicro())
			rows, err := tx.session.texts(ctx, text, args...)
			if err != nil {
				return nil, err
			}
			return readEffects(rows)
		})
		return err
	})
	switch {
	case err != nil:
		return nil, store.Unknown(explain(ctx, err))
	case refused != nil:
		return nil, refused
	}
	return taken, nil
}

// taking returns the statement that finds the effects of a taking.
func (s *queries) taking(q work.Taking, now int64) (text string, args []any) {
	switch {
	case q.Ordered:
		return s.workTakeNext, []any{now, q.To[0]}
	case len(q.To) == 0:
		return s.workTakeAny, []any{now, q.Limit}
	}
	return s.workTake, []any{now, q.Limit, list(q.To)}
}

// Settle carries out settlements in one transaction. If others have locked one
// of the effects, it carries out each in a transaction of its own.
func (l *Ledger) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	answers := make([]work.EffectAnswer, len(settlements))
	todo := clerk.CheckedSettlements(settlements, answers)
	if len(todo) == 0 {
		return answers
	}
	err := l.usable(ctx)
	if err == nil {
		wait := l.lockWait
		if len(todo) > 1 {
			wait = l.briefly()
		}
		err = l.settle(ctx, settlements, answers, todo, wait)
	}
	if err != nil && (len(todo) == 1 || !isKept(err)) {
		return clerk.FailedSettlements(answers, todo, explain(ctx, err))
	}
	if err != nil {
		for n := range todo {
			if err := l.settle(ctx, settlements, answers, todo[n:n+1], l.lockWait); err != nil {
				clerk.FailedSettlements(answers, todo[n:n+1], explain(ctx, err))
			}
		}
	}
	return answers
}

func (l *Ledger) settle(
	ctx context.Context, settlements []work.Settlement, answers []work.EffectAnswer, todo []int, wait time.Duration,
) error {
	return l.within(ctx, wait, func(tx *ledgerTx) error {
		changed, err := clerk.Settle(ctx, tx, settlements, answers, todo)
		if err != nil {
			return err
		}
		return tx.tell(ctx, l.sql.workWake, changed)
	})
}
