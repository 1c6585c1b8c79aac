package sqlite

import (
	"context"
	"iter"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Govern changes the rule of a queue, in a transaction of its own.
func (l *Ledger) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	if err := c.Check(); err != nil {
		return work.Rule{}, err
	}
	rule, err := answer(ctx, l, func(ctx context.Context, tx *ledgerTx) (work.Rule, error) {
		rules, err := tx.rules(ctx, c.Queue, "", 1)
		if err != nil {
			return work.Rule{}, err
		}
		var rule work.Rule
		if len(rules) > 0 {
			rule = rules[0]
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return work.Rule{}, err
		}
		if rule, err = work.Govern(rule, c, now); err != nil {
			return work.Rule{}, err
		}
		row := clerk.RuleRow(rule)
		n, err := tx.exec(ctx, sqlWorkRuleKeep, values(ruleFields(&row))...)
		return rule, allWritten(int(n), 1, err)
	})
	if err != nil {
		return work.Rule{}, store.Unknown(err)
	}
	return rule, nil
}

// Rules yields rules, ordered by queue.
func (l *Ledger) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	last := ""
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) (rules []work.Rule, read int, err error) {
		err = l.readOnly(ctx, func(tx *ledgerTx) (err error) {
			rules, err = tx.rules(ctx, q.Queue, last, n)
			return err
		})
		if len(rules) > 0 {
			last = rules[len(rules)-1].Queue
		}
		return rules, len(rules), err
	})
}

func ruleFields(r *clerk.Rule) []any {
	return []any{&r.Queue, &r.Paused, &r.Actor, &r.Note, &r.Changed}
}

// rules reads the rule of a queue, or of all if queue is empty, after the queue
// last.
func (tx *ledgerTx) rules(ctx context.Context, queue, last string, n int) (rules []work.Rule, err error) {
	rows, err := tx.session.QueryContext(ctx, sqlWorkRules, queue, last, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r clerk.Rule
		if err := rows.Scan(ruleFields(&r)...); err != nil {
			return nil, err
		}
		rules = append(rules, r.Read())
	}
	return rules, rows.Err()
}

// opened returns the queues that are not paused.
func (tx *ledgerTx) opened(ctx context.Context, queues []string) (opened []string, err error) {
	for _, q := range queues {
		paused := false
		if err := tx.session.QueryRowContext(ctx, sqlWorkPaused, q).Scan(&paused); err != nil {
			return nil, err
		}
		if !paused {
			opened = append(opened, q)
		}
	}
	return opened, nil
}
