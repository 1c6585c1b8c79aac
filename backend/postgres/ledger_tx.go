package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ledgerTx is a transaction in which items are worked on: the ledger's own, or
// the caller's. It implements [clerk.Tx] with SQL.
type ledgerTx struct {
	ledger  *Ledger
	session session
}

var (
	_ clerk.Tx        = (*ledgerTx)(nil)
	_ work.Operations = (*ledgerTx)(nil)
)

// Apply carries out requests in the caller's transaction.
func (tx *ledgerTx) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	answers := make([]work.Answer, len(requests))
	todo := clerk.Checked(requests, answers)
	if len(todo) == 0 {
		return answers
	}
	var changed clerk.Changed
	err := tx.begin(ctx)
	if err == nil {
		changed, err = clerk.Apply(ctx, tx, requests, answers, todo)
	}
	if err == nil {
		// Notify all queues, armed or not: the caller may commit much later,
		// and others may wait by then.
		err = tx.tell(ctx, tx.ledger.sql.workNotify, changed)
	}
	if err != nil {
		return clerk.Failed(answers, todo, explain(ctx, err))
	}
	return answers
}

// Claim takes items in the caller's transaction.
func (tx *ledgerTx) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	err := tx.begin(ctx)
	if err != nil {
		return nil, store.Unknown(explain(ctx, err))
	}
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workClaim, tx.ledger.claimArgs(c, false)...)
	if err != nil {
		return nil, store.Unknown(explain(ctx, err))
	}
	if isGoverned(rows) {
		items, err := tx.claimGoverned(ctx, c, false)
		if err != nil && !errors.Is(err, work.ErrInvalid) {
			err = store.Unknown(explain(ctx, err))
		}
		return items, err
	}
	items, _, err := tx.ledger.readClaim(ctx, c, rows)
	if err != nil {
		return nil, store.Unknown(err)
	}
	return items, nil
}

// Get reads an item in the caller's transaction.
func (tx *ledgerTx) Get(ctx context.Context, id work.ID) (work.Item, error) {
	return tx.ledger.get(ctx, id, func(ctx context.Context, text string, args ...any) ([]string, error) {
		if err := tx.begin(ctx); err != nil {
			return nil, err
		}
		return tx.session.texts(ctx, text, args...)
	})
}

func (tx *ledgerTx) begin(ctx context.Context) error {
	if err := tx.ledger.usable(ctx); err != nil {
		return err
	}
	return tx.ledger.ready(ctx, tx.session)
}

// tell notifies those who wait for changed queues, with the statement text.
func (tx *ledgerTx) tell(ctx context.Context, text string, c clerk.Changed) error {
	queues := c.Queues
	if c.Effects {
		queues = append(queues[:len(queues):len(queues)], "")
	}
	if len(queues) == 0 {
		return nil
	}
	_, err := tx.session.exec(ctx, text, list(queues))
	return err
}

// Now returns the server's time.
func (tx *ledgerTx) Now(ctx context.Context) (time.Time, error) {
	if tx.ledger.now != nil {
		return tenure.Time(tx.ledger.now()), nil
	}
	var us int64
	err := tx.session.row(ctx, tx.ledger.sql.now, nil, &us)
	return fromMicro(us), err
}

// Items locks and reads items.
func (tx *ledgerTx) Items(
	ctx context.Context, ids []work.ID, uniques []clerk.Unique, adding bool,
) ([]work.Item, clerk.Damage, error) {
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workItems, list(ids), adding)
	if err != nil {
		return nil, nil, err
	}
	if len(uniques) > 0 {
		type unique struct {
			Queue string `json:"queue"`
			Name  string `json:"uniq"`
		}
		var wanted []unique
		for _, u := range uniques {
			wanted = append(wanted, unique(u))
		}
		more, err := tx.session.texts(ctx, tx.ledger.sql.workUniques, list(wanted))
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, more...)
	}
	return readItems(rows)
}

// Insert writes new items.
func (tx *ledgerTx) Insert(ctx context.Context, items []work.Item) ([]work.ID, error) {
	text, err := itemList(items)
	if err != nil {
		return nil, err
	}
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workInsert, text)
	var ids []work.ID
	for _, id := range rows {
		ids = append(ids, work.ID(clerk.Plain(id)))
	}
	return ids, err
}

// Update writes items that exist.
func (tx *ledgerTx) Update(ctx context.Context, items []work.Item) error {
	text, err := itemList(items)
	if err != nil {
		return err
	}
	return tx.all(ctx, len(items), tx.ledger.sql.workUpdate, text)
}

// all executes a statement, and makes sure that it has written n rows.
func (tx *ledgerTx) all(ctx context.Context, n int, text string, args ...any) error {
	written, err := tx.session.exec(ctx, text, args...)
	if err != nil {
		return err
	}
	return allAnswered(int(written), n)
}

// Emit writes effects.
func (tx *ledgerTx) Emit(ctx context.Context, effects []work.Effect) error {
	_, err := tx.session.exec(ctx, tx.ledger.sql.workEmit, effectList(effects))
	return err
}

// Record writes refusals.
func (tx *ledgerTx) Record(ctx context.Context, refusals []work.Refusal) error {
	var rows []clerk.Refusal
	for _, r := range refusals {
		rows = append(rows, clerk.RefusalRow(r))
	}
	return tx.all(ctx, len(rows), tx.ledger.sql.workRefuse, list(rows))
}

// Marks locks and reads the marks of dispatchers.
func (tx *ledgerTx) Marks(ctx context.Context, keys []string) (map[string]fence.Mark, error) {
	marks := map[string]fence.Mark{}
	if len(keys) == 0 {
		return marks, nil
	}
	if _, err := tx.session.exec(ctx, tx.ledger.sql.workMarkEnter, list(keys)); err != nil {
		return nil, err
	}
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workMarks, list(keys))
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		var m struct {
			Key   string
			Token fence.Token
			Grant fence.Grant
		}
		if err := json.Unmarshal([]byte(row), &m); err != nil {
			return nil, err
		}
		if m.Token != 0 {
			marks[m.Key] = fence.Mark{Key: m.Key, Token: m.Token, Grant: m.Grant}
		}
	}
	return marks, nil
}

// KeepMarks writes marks.
func (tx *ledgerTx) KeepMarks(ctx context.Context, marks map[string]fence.Mark) error {
	for key, m := range marks {
		if err := tx.all(ctx, 1, tx.ledger.sql.workMark, key, int64(m.Token), string(m.Grant)); err != nil {
			return err
		}
	}
	return nil
}

// Effects locks and reads effects.
func (tx *ledgerTx) Effects(ctx context.Context, ids []work.EffectID) ([]work.Effect, error) {
	rows, err := tx.session.texts(ctx, tx.ledger.sql.workEffectsByID, list(ids))
	if err != nil {
		return nil, err
	}
	return readEffects(rows)
}

// UpdateEffects writes effects that exist.
func (tx *ledgerTx) UpdateEffects(ctx context.Context, effects []work.Effect) error {
	return tx.all(ctx, len(effects), tx.ledger.sql.workEffectUpdate, effectList(effects))
}
