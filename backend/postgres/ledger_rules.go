package postgres

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Govern changes the rule of a queue, in a transaction of its own. It wakes the
// workers that wait for the queue.
func (l *Ledger) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	if err := c.Check(); err != nil {
		return work.Rule{}, err
	}
	if err := l.usable(ctx); err != nil {
		return work.Rule{}, err
	}
	var rule work.Rule
	var refused error
	err := l.within(ctx, l.lockWait, func(tx *ledgerTx) error {
		rows, err := tx.session.texts(ctx, l.sql.workRule, c.Queue)
		if err != nil {
			return err
		}
		rules, err := readRules(rows)
		if err != nil {
			return err
		}
		rule = work.Rule{}
		if len(rules) > 0 {
			rule = rules[0]
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if rule, refused = work.Govern(rule, c, now); refused != nil {
			return nil
		}
		text, err := json.Marshal(clerk.RuleRow(rule))
		if err != nil {
			return err
		}
		if err := tx.all(ctx, 1, l.sql.workRuleKeep, string(text)); err != nil {
			return err
		}
		return tx.tell(ctx, l.sql.workWake, clerk.Changed{Queues: []string{c.Queue}})
	})
	if err != nil {
		return work.Rule{}, store.Unknown(explainWork(ctx, err))
	}
	return rule, refused
}

// Rules yields rules, ordered by queue.
func (l *Ledger) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	last := ""
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) ([]work.Rule, int, error) {
		rows, err := l.look(ctx, l.sql.workRules, q.Queue, last, n)
		if err != nil {
			return nil, 0, err
		}
		rules, err := readRules(rows)
		if err != nil {
			return nil, 0, store.Unknown(err)
		}
		if len(rules) > 0 {
			last = rules[len(rules)-1].Queue
		}
		return rules, len(rules), nil
	})
}

func readRules(rows []string) ([]work.Rule, error) {
	rules := make([]work.Rule, len(rows))
	for i, text := range rows {
		var row clerk.Rule
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, err
		}
		rules[i] = row.Read()
	}
	return rules, nil
}
