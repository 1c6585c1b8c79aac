package sqlite

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

var _ clerk.ClaimTx = (*ledgerTx)(nil)

// Govern changes a rule, in a transaction of its own.
func (l *Ledger) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	if err := c.Check(); err != nil {
		return work.Rule{}, err
	}
	rule, err := answer(ctx, l, func(ctx context.Context, tx *ledgerTx) (work.Rule, error) {
		rules, err := tx.Rules(ctx, c.Queue, []string{c.Partition})
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
		if err := allWritten(int(n), 1, err); err != nil {
			return work.Rule{}, err
		}
		_, err = tx.exec(ctx, sqlWorkWaitAnew, c.Queue, c.Partition, now.UnixMicro())
		return rule, err
	})
	if err != nil {
		return work.Rule{}, store.Unknown(err)
	}
	return rule, nil
}

// Rules yields rules, ordered by queue and partition.
func (l *Ledger) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	var last work.Rule
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) (rules []work.Rule, read int, err error) {
		err = l.readOnly(ctx, func(tx *ledgerTx) (err error) {
			rules, err = tx.rules(ctx, sqlWorkRules, q.Queue, last.Queue, last.Partition, n)
			return err
		})
		if len(rules) > 0 {
			last = rules[len(rules)-1]
		}
		return rules, len(rules), err
	})
}

func ruleFields(r *clerk.Rule) []any {
	return []any{&r.Queue, &r.Partition, &r.Paused, &r.Running, &r.Starts, &r.Span, &r.Actor, &r.Note, &r.Changed}
}

// rules reads the rules that a statement finds.
func (tx *ledgerTx) rules(ctx context.Context, text string, args ...any) (rules []work.Rule, err error) {
	return read(ctx, tx, text, args, func(rows *sql.Rows) (work.Rule, error) {
		var r clerk.Rule
		err := rows.Scan(ruleFields(&r)...)
		return r.Read(), err
	})
}

// read reads the rows that a statement finds.
func read[T any](
	ctx context.Context, tx *ledgerTx, text string, args []any, one func(*sql.Rows) (T, error),
) (all []T, err error) {
	rows, err := tx.session.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		v, err := one(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// Ruled reports whether any rule of a queue is about partitions.
func (tx *ledgerTx) Ruled(ctx context.Context, queue string) (ruled bool, err error) {
	err = tx.session.QueryRowContext(ctx, sqlWorkRuled, queue).Scan(&ruled)
	return ruled, err
}

// Rules reads the rules of a queue about these partitions.
func (tx *ledgerTx) Rules(ctx context.Context, queue string, partitions []string) (all []work.Rule, err error) {
	for _, p := range partitions {
		some, err := tx.rules(ctx, sqlWorkRule, queue, p)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Running counts the running items of partitions, or of the whole queue.
func (tx *ledgerTx) Running(ctx context.Context, queue string, partitions []string) (map[string]int, error) {
	counts := map[string]int{}
	for _, p := range partitions {
		text, args := sqlWorkRunningIn, []any{queue, p}
		if p == "" {
			text, args = sqlWorkRunning, args[:1]
		}
		n := 0
		if err := tx.session.QueryRowContext(ctx, text, args...).Scan(&n); err != nil {
			return nil, err
		}
		counts[p] = n
	}
	return counts, nil
}

// Starts reads the starts that were counted.
func (tx *ledgerTx) Starts(ctx context.Context, queue string, partitions []string) (all []clerk.Start, err error) {
	for _, p := range partitions {
		some, err := read(ctx, tx, sqlWorkStarts, []any{queue, p}, func(rows *sql.Rows) (clerk.Start, error) {
			s, us := clerk.Start{Queue: queue, Partition: p}, int64(0)
			err := rows.Scan(&us, &s.N)
			s.Slot = clerk.Time(&us)
			return s, err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// KeepStart adds to the starts that are counted, and forgets old ones.
func (tx *ledgerTx) KeepStart(ctx context.Context, s clerk.Start, until time.Time) error {
	if _, err := tx.exec(ctx, sqlWorkStartForget, s.Queue, s.Partition, until.UnixMicro()); err != nil {
		return err
	}
	_, err := tx.exec(ctx, sqlWorkStart, s.Queue, s.Partition, s.Slot.UnixMicro(), s.N)
	return err
}

// Level returns the highest priority below the given one at which an item or a
// partition waits.
func (tx *ledgerTx) Level(ctx context.Context, queue string, below int) (int, error) {
	level := -work.MaxPriority - 1
	for _, text := range []string{sqlWorkLevel, sqlWorkPartitionLevel} {
		var top sql.NullInt64
		if err := tx.session.QueryRowContext(ctx, text, queue, below).Scan(&top); err != nil {
			return 0, err
		}
		if top.Valid {
			level = max(level, int(top.Int64))
		}
	}
	return level, nil
}

// Turns reads the next partitions that wait.
func (tx *ledgerTx) Turns(
	ctx context.Context, queue string, level int, now time.Time, after clerk.Turn, n int,
) ([]clerk.Turn, error) {
	args := []any{queue, level, now.UnixMicro(), after.Since.UnixMicro(), after.Partition, n}
	return read(ctx, tx, sqlWorkTurns, args, func(rows *sql.Rows) (t clerk.Turn, err error) {
		us := int64(0)
		err = rows.Scan(&t.Partition, &us)
		t.Since = clerk.Time(&us)
		return t, err
	})
}

// Ready reads the next ready items of each partition.
func (tx *ledgerTx) Ready(
	ctx context.Context, queue string, level int, now time.Time, after []clerk.Cursor, n int,
) (all []work.Item, damage clerk.Damage, err error) {
	for _, c := range after {
		some, bad, err := tx.items(ctx, sqlWorkReady,
			queue, level, now.UnixMicro(), c.Ready.UnixMicro(), string(c.ID), n, c.Partition)
		if err != nil {
			return nil, nil, err
		}
		all, damage = append(all, some...), append(damage, bad...)
	}
	return all, damage, nil
}

// Wait lets partitions wait since other times.
func (tx *ledgerTx) Wait(ctx context.Context, queue string, level int, turns []clerk.Turn) error {
	for _, t := range turns {
		if _, err := tx.exec(ctx, sqlWorkWait, queue, level, t.Partition, t.Since.UnixMicro()); err != nil {
			return err
		}
	}
	return nil
}

// Settle lets partitions wait since their first item is ready, and forgets
// those in which nothing waits.
func (tx *ledgerTx) Settle(
	ctx context.Context, queue string, level int, now time.Time, partitions []string,
) error {
	for _, p := range partitions {
		if _, err := tx.exec(ctx, sqlWorkSettleEmpty, queue, level, p); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, sqlWorkSettle, queue, level, p, now.UnixMicro()); err != nil {
			return err
		}
	}
	return nil
}

// Grant writes items that a claim has taken.
func (tx *ledgerTx) Grant(ctx context.Context, items []work.Item) error { return tx.Update(ctx, items) }
