package ledger

import (
	"context"
	"slices"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// Take takes effects for delivery.
func (l *Ledger) Take(ctx context.Context, q work.Taking) ([]work.Effect, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	b := l.shared
	b.mu.Lock()
	defer b.mu.Unlock()
	now := tenure.Time(b.now())
	mark, refusal, err := b.law.Admit(q, b.marks[q.Stamp.Key], now)
	if b.law.Record(refusal) {
		b.refusals = append(b.refusals, *refusal)
	}
	if err != nil {
		return nil, err
	}
	b.marks[q.Stamp.Key] = mark
	all := b.outbox()
	if q.Ordered {
		next, ok := b.law.Next(q, slices.Values(all), now)
		if all = nil; ok {
			all = []work.Effect{next}
		}
	}
	slices.SortFunc(all, func(x, y work.Effect) int {
		switch {
		case x.Before(y):
			return -1
		case y.Before(x):
			return 1
		}
		return 0
	})
	var taken []work.Effect
	for _, e := range all {
		if len(taken) == q.Limit {
			break
		}
		if b.law.Takes(q, e, now) {
			e = b.law.Take(e, q, now)
			b.effects[e.EffectID] = e
			taken = append(taken, copiedEffect(e))
		}
	}
	return taken, nil
}

// outbox returns all effects, in no order.
func (b *shared) outbox() []work.Effect {
	all := make([]work.Effect, 0, len(b.effects))
	for _, e := range b.effects {
		all = append(all, e)
	}
	return all
}

// Settle carries out settlements.
func (l *Ledger) Settle(ctx context.Context, settlements []work.Settlement) []work.EffectAnswer {
	if err := l.usable(ctx); err != nil {
		return work.FailedEffects(len(settlements), err)
	}
	b := l.shared
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.wake()
	answers := make([]work.EffectAnswer, len(settlements))
	for i, s := range settlements {
		if err := ctx.Err(); err != nil {
			answers[i].Err = store.Unknown(err)
			continue
		}
		if err := s.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		now := tenure.Time(b.now())
		out, err := b.law.Settle(copiedEffect(b.effects[s.Effect]), b.marks[s.Stamp.Key], s, now)
		if b.law.Record(out.Refusal) {
			b.refusals = append(b.refusals, *out.Refusal)
		}
		if err == nil && !s.ByHand() {
			b.marks[s.Stamp.Key] = out.Mark
		}
		if out.Changed {
			b.effects[s.Effect] = copiedEffect(out.Effect)
		}
		answers[i] = work.EffectAnswer{
			Effect: copiedEffect(out.Effect), Repeated: err == nil && !out.Changed, Now: now, Err: err,
		}
	}
	return answers
}
