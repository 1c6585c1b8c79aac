package ledger

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/croft-dev/croft/work"
)

// ruleKey names a rule, group the items of a partition that have the same
// priority, and startKey the starts that are counted at one time.
type (
	ruleKey struct{ queue, partition string }
	group   struct {
		queue, partition string
		priority         int
	}
	startKey struct {
		ruleKey
		at time.Time
	}
)

// turns puts items into the order of claims.
func (s session) turns(items []work.Item) {
	s.law.Turns(items, func(queue, partition string, priority int) time.Time {
		return s.on.served[group{queue, partition, priority}]
	})
}

// gates returns the gates of queues.
func (s session) gates(queues []string, now time.Time) map[string]*work.Gate {
	gates := map[string]*work.Gate{}
	for _, q := range queues {
		gates[q] = work.NewGate(now)
	}
	for key, r := range s.on.rules {
		if g := gates[key.queue]; g != nil {
			g.Rule(s.law.Rule(r))
		}
	}
	running := map[ruleKey]int{}
	for _, it := range s.on.items {
		if it.State == work.Running {
			running[ruleKey{it.Queue, ""}]++
			if it.Partition != "" {
				running[ruleKey{it.Queue, it.Partition}]++
			}
		}
	}
	for key, n := range running {
		if g := gates[key.queue]; g != nil {
			g.Running(key.partition, s.law.Running(n))
		}
	}
	for key, n := range s.on.starts {
		if g := gates[key.queue]; g != nil {
			g.Started(key.partition, key.at, n)
		}
	}
	return gates
}

// started notes that a claim takes an item.
func (s session) started(it work.Item, g *work.Gate, now time.Time) {
	if it.Partition != "" {
		s.on.served[group{it.Queue, it.Partition, it.Priority}] = now
	}
	for _, p := range slices.Compact([]string{"", it.Partition}) {
		if r := g.RuleOf(p); r.Starts > 0 {
			s.on.starts[startKey{ruleKey{it.Queue, p}, r.Slot(now)}]++
		}
	}
}

// Govern changes a rule.
func (l *Ledger) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	var rule work.Rule
	var refused error
	key := ruleKey{c.Queue, c.Partition}
	err := l.look(ctx, c.Check(), func(b *shared) {
		if rule, refused = b.law.Govern(b.rules[key], c, b.now()); refused == nil {
			b.rules[key] = rule
			b.wake()
		}
	})
	return rule, cmp.Or(err, refused)
}

// Rules yields rules, ordered by queue and partition.
func (l *Ledger) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	var found []work.Rule
	err := l.look(ctx, q.Check(), func(b *shared) {
		for _, r := range b.rules {
			if q.Selects(r) {
				found = append(found, r)
			}
		}
	})
	slices.SortFunc(found, func(x, y work.Rule) int {
		return cmp.Or(cmp.Compare(x.Queue, y.Queue), cmp.Compare(x.Partition, y.Partition))
	})
	return yielded(found, q.Limit, err)
}
