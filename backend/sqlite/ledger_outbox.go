package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Take takes effects for delivery, under the dispatcher's mark.
func (l *Ledger) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	q.To = slices.Clone(q.To)
	type outcome struct {
		taken   []work.Effect
		refused error
	}
	out, err := answer(ctx, l, func(ctx context.Context, tx *ledgerTx) (out outcome, err error) {
		out.taken, out.refused, err = clerk.Take(ctx, tx, q, func(now time.Time) ([]work.Effect, error) {
			return tx.due(ctx, q, now)
		})
		return out, err
	})
	if err != nil {
		return nil, store.Unknown(err)
	}
	return out.taken, out.refused
}

// due returns the effects of a taking.
func (tx *ledgerTx) due(ctx context.Context, q work.Taking, now time.Time) (due []work.Effect, err error) {
	switch {
	case q.Ordered:
		return tx.effects(ctx, sqlWorkTakeNext, now.UnixMicro(), q.Limit, q.To[0])
	case len(q.To) == 0:
		return tx.effects(ctx, sqlWorkTakeAny, now.UnixMicro(), q.Limit)
	}
	to := slices.Clone(q.To)
	slices.Sort(to)
	for _, name := range slices.Compact(to) {
		found, err := tx.effects(ctx, sqlWorkTake, now.UnixMicro(), q.Limit, name)
		if err != nil {
			return nil, err
		}
		due = append(due, found...)
	}
	slices.SortFunc(due, func(a, b work.Effect) int {
		return cmp.Or(a.Ready.Compare(b.Ready), a.Compare(b.EffectID))
	})
	return due[:min(len(due), q.Limit)], nil
}

// list returns values as a JSON array: "[]" if there are none.
func list[T ~string](values []T) string {
	if len(values) == 0 {
		return "[]"
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // strings
	}
	return string(text)
}

// Settle carries out settlements in one transaction.
func (l *Ledger) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	answers := make([]work.EffectAnswer, len(settlements))
	todo := clerk.CheckedSettlements(settlements, answers)
	if len(todo) == 0 {
		return answers
	}
	settlements = slices.Clone(settlements) // the transaction may outlive this call
	settled, err := answer(ctx, l, func(ctx context.Context, tx *ledgerTx) ([]work.EffectAnswer, error) {
		settled := make([]work.EffectAnswer, len(settlements))
		_, err := clerk.Settle(ctx, tx, settlements, settled, todo)
		return settled, err
	})
	if err != nil {
		return clerk.FailedSettlements(answers, todo, err)
	}
	for _, i := range todo {
		answers[i] = settled[i]
	}
	return answers
}
