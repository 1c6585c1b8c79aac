package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

var _ clerk.ClaimTx = (*ledgerTx)(nil)

// Govern changes a rule, in a transaction of its own. It waits for the claims
// under way, which do not know of it. It wakes the workers that wait for the
// queue.
func (l *Ledger) Govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	if err := c.Check(); err != nil {
		return work.Rule{}, err
	}
	if err := l.usable(ctx); err != nil {
		return work.Rule{}, err
	}
	if err := l.make(ctx); err != nil {
		return work.Rule{}, store.Unknown(explainWork(ctx, err))
	}
	var rule work.Rule
	var err error
	for until := time.Now().Add(l.lockWait); ; {
		err = l.within(ctx, l.briefly(), func(tx *ledgerTx) (err error) {
			rule, err = tx.govern(ctx, c)
			return err
		})
		// All claims stand behind a change that waits. Let them pass.
		if !isKept(err) || time.Now().After(until) || clock.Sleep(ctx, 3*l.briefly()) != nil {
			break
		}
	}
	if err != nil {
		return work.Rule{}, store.Unknown(explainWork(ctx, err))
	}
	return rule, nil
}

func (tx *ledgerTx) govern(ctx context.Context, c work.RuleChange) (work.Rule, error) {
	none, sql := work.Rule{}, tx.ledger.sql
	if _, err := tx.session.texts(ctx, sql.workGovernEnter); err != nil {
		return none, err
	}
	rules, err := tx.Rules(ctx, c.Queue, []string{c.Partition})
	if err != nil {
		return none, err
	}
	var rule work.Rule
	if len(rules) > 0 {
		rule = rules[0]
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return none, err
	}
	if rule, err = work.Govern(rule, c, now); err != nil {
		return none, err
	}
	text, err := json.Marshal(clerk.RuleRow(rule))
	if err != nil {
		return none, err
	}
	if err := tx.all(ctx, 1, sql.workRuleKeep, string(text)); err != nil {
		return none, err
	}
	if err := tx.all(ctx, 1, sql.workRuleChanges, now.UnixMicro()); err != nil {
		return none, err
	}
	if _, err := tx.session.exec(ctx, sql.workWaitAnew, c.Queue, c.Partition, now.UnixMicro()); err != nil {
		return none, err
	}
	return rule, tx.tell(ctx, sql.workWake, clerk.Changed{Queues: []string{c.Queue}})
}

// Rules yields rules, ordered by queue and partition.
func (l *Ledger) Rules(ctx context.Context, q work.RuleQuery) iter.Seq2[work.Rule, error] {
	var last work.Rule
	made := false
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) ([]work.Rule, int, error) {
		if !made {
			if err := l.usable(ctx); err != nil {
				return nil, 0, err
			}
			if err := l.make(ctx); err != nil {
				return nil, 0, store.Unknown(explainWork(ctx, err))
			}
			made = true
		}
		rows, err := l.look(ctx, l.sql.workRules, q.Queue, last.Queue, last.Partition, n)
		if err != nil {
			return nil, 0, err
		}
		rules, err := readRules(rows)
		if err != nil {
			return nil, 0, store.Unknown(err)
		}
		if len(rules) > 0 {
			last = rules[len(rules)-1]
		}
		return rules, len(rules), nil
	})
}

// readRows reads rows of JSON.
func readRows[R, T any](rows []string, one func(R) T) ([]T, error) {
	all := make([]T, len(rows))
	for i, text := range rows {
		var row R
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, fmt.Errorf("a row cannot be read: %w", err)
		}
		all[i] = one(row)
	}
	return all, nil
}

func readRules(rows []string) ([]work.Rule, error) { return readRows(rows, clerk.Rule.Read) }

// claimGoverned claims by the law of package work. With wait it waits a little
// for other claims from the same queues, and the error of a lock that it did
// not get says so. Otherwise it leaves out queues from which others claim just
// now.
func (tx *ledgerTx) claimGoverned(ctx context.Context, c work.Claim, wait bool) ([]work.Item, error) {
	var entered, isolation string
	if err := tx.session.row(ctx, tx.ledger.sql.workClaimEnter, nil, &entered, &isolation); err != nil {
		return nil, err
	}
	if c.Again {
		rows, err := tx.session.texts(ctx, tx.ledger.sql.workGranted, list(c.Queues), string(c.Secret.Grant()))
		if err != nil {
			return nil, err
		}
		items, err := tx.sound(ctx, rows)
		if err != nil || len(items) > 0 {
			slices.SortFunc(items, func(a, b work.Item) int {
				if a.Before(b) {
					return -1
				}
				return 1
			})
			return items, err
		}
	}
	limited, err := tx.session.texts(ctx, tx.ledger.sql.workLimited, list(c.Queues))
	if err != nil {
		return nil, err
	}
	c.Queues = slices.Clone(c.Queues)
	for _, q := range limited {
		if isolation != "read committed" {
			return nil, fmt.Errorf("%w transaction: queue %q has rules, and at the level %s a claim may not see "+
				"what runs there; begin the transaction at READ COMMITTED", fence.ErrInvalid, q, isolation)
		}
		free := true
		if wait {
			var was, locked string
			args := []any{q, strconv.FormatInt(tx.ledger.briefly().Milliseconds(), 10)}
			err = tx.session.row(ctx, tx.ledger.sql.workTurnTake, args, &was, &locked)
		} else {
			err = tx.session.row(ctx, tx.ledger.sql.workTurnTry, []any{q}, &free)
		}
		if err != nil {
			return nil, err
		}
		if !free {
			c.Queues = slices.DeleteFunc(c.Queues, func(other string) bool { return other == q })
		}
	}
	if len(c.Queues) == 0 {
		return nil, nil
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	return clerk.Claim(ctx, tx, c, now)
}

// sound reads items. It leaves out damaged ones and logs them, so that they
// keep nobody from the others.
func (tx *ledgerTx) sound(ctx context.Context, rows []string) ([]work.Item, error) {
	items, damage, err := readItems(rows)
	for _, d := range damage {
		tx.ledger.logger().WarnContext(ctx, "croft: the row of an item is damaged; nobody claims it",
			"item", string(d.Item), "why", d.Error())
	}
	return items, err
}

// Ruled reports whether any rule of a queue is about partitions.
func (tx *ledgerTx) Ruled(ctx context.Context, queue string) (ruled bool, err error) {
	err = tx.session.row(ctx, tx.ledger.sql.workRuled, []any{queue}, &ruled)
	return ruled, err
}

// Rules reads the rules of a queue about these partitions.
func (tx *ledgerTx) Rules(ctx context.Context, queue string, partitions []string) ([]work.Rule, error) {
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workRulesOf, queue, list(partitions))
	if err != nil {
		return nil, err
	}
	return readRules(rows)
}

// Running counts the running items of partitions, or of the whole queue.
func (tx *ledgerTx) Running(ctx context.Context, queue string, partitions []string) (map[string]int, error) {
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workRunning, queue, list(partitions))
	if err != nil {
		return nil, err
	}
	type count struct {
		Name string
		N    int
	}
	counts := map[string]int{}
	_, err = readRows(rows, func(c count) count {
		counts[c.Name] = c.N
		return c
	})
	return counts, err
}

// Starts reads the starts that were counted.
func (tx *ledgerTx) Starts(ctx context.Context, queue string, partitions []string) ([]clerk.Start, error) {
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workStarts, queue, list(partitions))
	if err != nil {
		return nil, err
	}
	type start struct {
		Partition string
		Slot      int64
		N         int
	}
	return readRows(rows, func(s start) clerk.Start {
		return clerk.Start{Queue: queue, Partition: s.Partition, Slot: fromMicro(s.Slot), N: s.N}
	})
}

// KeepStart adds to the starts that are counted, and forgets old ones.
func (tx *ledgerTx) KeepStart(ctx context.Context, s clerk.Start, until time.Time) error {
	sql := tx.ledger.sql
	if _, err := tx.session.exec(ctx, sql.workStartForget, s.Queue, s.Partition, until.UnixMicro()); err != nil {
		return err
	}
	return tx.all(ctx, 1, sql.workStart, s.Queue, s.Partition, s.Slot.UnixMicro(), s.N)
}

// Level returns the highest priority below the given one at which an item or a
// partition waits.
func (tx *ledgerTx) Level(ctx context.Context, queue string, below int) (int, error) {
	var level *int
	if err := tx.session.row(ctx, tx.ledger.sql.workLevel, []any{queue, below}, &level); err != nil {
		return 0, err
	}
	if level == nil {
		return -work.MaxPriority - 1, nil
	}
	return *level, nil
}

// turn is the row of a partition.
type turn struct {
	Name  string `json:"name"`
	Since int64  `json:"since"`
}

// Turns reads the next partitions that wait.
func (tx *ledgerTx) Turns(
	ctx context.Context, queue string, level int, now time.Time, after clerk.Turn, n int,
) ([]clerk.Turn, error) {
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workTurns,
		queue, level, now.UnixMicro(), after.Since.UnixMicro(), after.Partition, n)
	if err != nil {
		return nil, err
	}
	return readRows(rows, func(t turn) clerk.Turn { return clerk.Turn{Partition: t.Name, Since: fromMicro(t.Since)} })
}

// Ready locks and reads the next ready items of each partition.
func (tx *ledgerTx) Ready(
	ctx context.Context, queue string, level int, now time.Time, after []clerk.Cursor, n int,
) ([]work.Item, clerk.Damage, error) {
	type cursor struct {
		Partition string `json:"partition"`
		Ready     int64  `json:"ready"`
		ID        string `json:"id"`
	}
	cursors := make([]cursor, len(after))
	for i, c := range after {
		cursors[i] = cursor{c.Partition, c.Ready.UnixMicro(), string(c.ID)}
		if c.ID == "" { // before all
			cursors[i].ID = "00000000000000000000000000000000"
		}
	}
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workReady, queue, level, now.UnixMicro(), list(cursors), n)
	if err != nil {
		return nil, nil, err
	}
	return readItems(rows)
}

// Wait lets partitions wait since other times.
func (tx *ledgerTx) Wait(ctx context.Context, queue string, level int, turns []clerk.Turn) error {
	rows := make([]turn, len(turns))
	for i, t := range turns {
		rows[i] = turn{t.Partition, t.Since.UnixMicro()}
	}
	_, err := tx.session.texts(ctx, tx.ledger.sql.workWait, queue, level, list(rows))
	return err
}

// Settle lets partitions wait since their first item is ready, and forgets
// those in which nothing waits.
func (tx *ledgerTx) Settle(
	ctx context.Context, queue string, level int, now time.Time, partitions []string,
) error {
	_, err := tx.session.texts(ctx, tx.ledger.sql.workSettle, queue, level, list(partitions), now.UnixMicro())
	return err
}

// Grant writes items that a claim has taken. It sends nothing that a claim
// leaves as it is, such as the payload.
func (tx *ledgerTx) Grant(ctx context.Context, items []work.Item) error {
	lean := slices.Clone(items)
	for i := range lean {
		lean[i].Payload, lean[i].Checkpoint, lean[i].Result, lean[i].Guards = nil, nil, nil, nil
	}
	text, err := itemList(lean)
	if err != nil {
		return err
	}
	written, err := tx.session.texts(ctx, tx.ledger.sql.workGrant, text)
	if err != nil {
		return err
	}
	return allAnswered(len(written), len(items))
}
