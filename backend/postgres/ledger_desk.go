package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// desk is a transaction in which items are worked on: the ledger's own, or the
// caller's. It implements [clerk.Desk] with SQL.
type desk struct {
	ledger  *Ledger
	session session
}

var (
	_ clerk.Desk      = (*desk)(nil)
	_ work.Operations = (*desk)(nil)
)

// Apply carries out requests in the caller's transaction.
func (d *desk) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	answers := make([]work.Answer, len(requests))
	todo := clerk.Checked(requests, answers)
	if len(todo) == 0 {
		return answers
	}
	var changed clerk.Changed
	err := d.begin(ctx)
	if err == nil {
		changed, err = clerk.Apply(ctx, d, requests, answers, todo)
	}
	if err == nil {
		// Notify all queues, armed or not: the caller may commit much later,
		// and others may wait by then.
		err = d.tell(ctx, d.ledger.sql.workNotify, changed)
	}
	if err != nil {
		return clerk.Failed(answers, todo, explain(ctx, err))
	}
	return answers
}

// Claim takes items in the caller's transaction.
func (d *desk) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	err := d.begin(ctx)
	if err != nil {
		return nil, store.Unknown(explain(ctx, err))
	}
	rows, err := d.session.texts(ctx, d.ledger.sql.workClaim, d.ledger.claimArgs(c, false)...)
	if err != nil {
		return nil, store.Unknown(explain(ctx, err))
	}
	items, _, err := d.ledger.readClaim(ctx, c, rows)
	if err != nil {
		return nil, store.Unknown(err)
	}
	return items, nil
}

// Get reads an item in the caller's transaction.
func (d *desk) Get(ctx context.Context, id work.ID) (work.Item, error) {
	return d.ledger.get(ctx, id, func(ctx context.Context, text string, args ...any) ([]string, error) {
		if err := d.begin(ctx); err != nil {
			return nil, err
		}
		return d.session.texts(ctx, text, args...)
	})
}

func (d *desk) begin(ctx context.Context) error {
	if err := d.ledger.usable(ctx); err != nil {
		return err
	}
	return d.ledger.ready(ctx, d.session)
}

// tell notifies those who wait for changed queues, with the statement text.
func (d *desk) tell(ctx context.Context, text string, c clerk.Changed) error {
	queues := c.Queues
	if c.Effects {
		queues = append(queues[:len(queues):len(queues)], "")
	}
	if len(queues) == 0 {
		return nil
	}
	_, err := d.session.exec(ctx, text, list(queues))
	return err
}

// Now returns the server's time.
func (d *desk) Now(ctx context.Context) (time.Time, error) {
	if d.ledger.now != nil {
		return tenure.Time(d.ledger.now()), nil
	}
	var us int64
	err := d.session.row(ctx, d.ledger.sql.now, nil, &us)
	return fromMicro(us), err
}

// Items locks and reads items.
func (d *desk) Items(
	ctx context.Context, ids []work.ID, uniques []clerk.Unique, adding bool,
) ([]work.Item, clerk.Damage, error) {
	rows, err := d.session.texts(ctx, d.ledger.sql.workItems, list(ids), adding)
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
		more, err := d.session.texts(ctx, d.ledger.sql.workUniques, list(wanted))
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, more...)
	}
	return readItems(rows)
}

// Insert writes new items.
func (d *desk) Insert(ctx context.Context, items []work.Item) ([]work.ID, error) {
	text, err := itemList(items)
	if err != nil {
		return nil, err
	}
	rows, err := d.session.texts(ctx, d.ledger.sql.workInsert, text)
	var ids []work.ID
	for _, id := range rows {
		ids = append(ids, work.ID(clerk.Plain(id)))
	}
	return ids, err
}

// Update writes items that exist.
func (d *desk) Update(ctx context.Context, items []work.Item) error {
	text, err := itemList(items)
	if err != nil {
		return err
	}
	return d.all(ctx, len(items), d.ledger.sql.workUpdate, text)
}

// all executes a statement, and makes sure that it has written n rows.
func (d *desk) all(ctx context.Context, n int, text string, args ...any) error {
	written, err := d.session.exec(ctx, text, args...)
	if err != nil {
		return err
	}
	return allAnswered(int(written), n)
}

// Emit writes effects.
func (d *desk) Emit(ctx context.Context, effects []work.Effect) error {
	_, err := d.session.exec(ctx, d.ledger.sql.workEmit, effectList(effects))
	return err
}

// Record writes refusals.
func (d *desk) Record(ctx context.Context, refusals []work.Refusal) error {
	var rows []clerk.Refusal
	for _, r := range refusals {
		rows = append(rows, clerk.RefusalRow(r))
	}
	return d.all(ctx, len(rows), d.ledger.sql.workRefuse, list(rows))
}

// Marks locks and reads the marks of dispatchers.
func (d *desk) Marks(ctx context.Context, keys []string) (map[string]fence.Mark, error) {
	marks := map[string]fence.Mark{}
	if len(keys) == 0 {
		return marks, nil
	}
	if _, err := d.session.exec(ctx, d.ledger.sql.workMarkEnter, list(keys)); err != nil {
		return nil, err
	}
	rows, err := d.session.texts(ctx, d.ledger.sql.workMarks, list(keys))
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
func (d *desk) KeepMarks(ctx context.Context, marks map[string]fence.Mark) error {
	for key, m := range marks {
		if err := d.all(ctx, 1, d.ledger.sql.workMark, key, int64(m.Token), string(m.Grant)); err != nil {
			return err
		}
	}
	return nil
}

// Effects locks and reads effects.
func (d *desk) Effects(ctx context.Context, ids []work.EffectID) ([]work.Effect, error) {
	rows, err := d.session.texts(ctx, d.ledger.sql.workEffectsByID, list(ids))
	if err != nil {
		return nil, err
	}
	return readEffects(rows)
}

// UpdateEffects writes effects that exist.
func (d *desk) UpdateEffects(ctx context.Context, effects []work.Effect) error {
	return d.all(ctx, len(effects), d.ledger.sql.workEffectUpdate, effectList(effects))
}
