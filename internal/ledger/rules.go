package ledger

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/croft-dev/croft/work"
)

// Govern changes a rule.
func (l *Ledger) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	var rule work.Rule
	var refused error
	err := l.look(ctx, c.Check(), func(b *shared) {
		if rule, refused = b.law.Govern(b.rules[c.Queue], c, b.now()); refused == nil {
			b.rules[c.Queue] = rule
			b.wake()
		}
	})
	return rule, cmp.Or(err, refused)
}

// Rules yields rules, ordered by queue.
func (l *Ledger) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	var found []work.Rule
	err := l.look(ctx, q.Check(), func(b *shared) {
		for _, r := range b.rules {
			if q.Selects(r) {
				found = append(found, r)
			}
		}
	})
	slices.SortFunc(found, func(x, y work.Rule) int { return cmp.Compare(x.Queue, y.Queue) })
	return yielded(found, q.Limit, err)
}
