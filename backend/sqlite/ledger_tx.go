package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ledgerTx carries out operations on items in one transaction: the ledger's
// own, or the caller's. SQLite locks the whole file for a writer, so ledgerTx
// locks no rows.
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
	err := tx.begin(ctx)
	if err == nil {
		_, err = clerk.Apply(ctx, tx, requests, answers, todo)
	}
	if err != nil {
		return clerk.Failed(answers, todo, tx.ledger.explain(ctx, err))
	}
	return answers
}

// Claim takes items in the caller's transaction.
func (tx *ledgerTx) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	err := tx.begin(ctx)
	if err == nil {
		var items []work.Item
		if items, err = tx.claim(ctx, c); err == nil {
			return items, nil
		}
	}
	return nil, store.Unknown(tx.ledger.explain(ctx, err))
}

// Get reads an item in the caller's transaction.
func (tx *ledgerTx) Get(ctx context.Context, id work.ID) (work.Item, error) {
	if err := id.Check(); err != nil {
		return work.Item{}, err
	}
	err := tx.begin(ctx)
	var it work.Item
	if err == nil {
		it, err = tx.one(ctx, id)
	}
	switch {
	case err != nil:
		return work.Item{}, store.Unknown(tx.ledger.explain(ctx, err))
	case it.IsZero():
		return work.Item{}, &work.NotFoundError{What: "item " + string(id)}
	}
	return it, nil
}

// begin makes sure that the tables are there. If the store has not been opened
// yet, begin makes missing tables in the caller's own transaction, which has
// the write lock.
func (tx *ledgerTx) begin(ctx context.Context) error {
	s := tx.ledger.store
	if err := s.usable(ctx); err != nil {
		return err
	}
	if s.opened() != nil {
		return nil
	}
	version := 0
	err := tx.session.QueryRowContext(ctx, sqlVersion).Scan(&version)
	if all := migrations(); lacksTable(err) || err == nil && version < len(all) {
		return (&base{}).migrateFrom(ctx, tx.session, all, false)
	}
	return err
}

func (l *Ledger) explain(ctx context.Context, err error) error {
	if b := l.store.opened(); b != nil {
		return b.explain(ctx, err)
	}
	return err
}

// opened returns the database if it is open, and nil otherwise.
func (s *Store) opened() *base {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// Now returns the machine's time.
func (tx *ledgerTx) Now(context.Context) (time.Time, error) {
	return tenure.Time(tx.ledger.store.options.now()), nil
}

// items reads the items that a statement over all columns finds. It returns
// damaged ones apart.
func (tx *ledgerTx) items(
	ctx context.Context, text string, args ...any,
) (items []work.Item, damage clerk.Damage, err error) {
	rows, err := tx.session.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r clerk.Item
		if err := rows.Scan(itemFields(&r)...); err != nil {
			return nil, nil, err
		}
		items, damage = clerk.Sound(r, items, damage)
	}
	return items, damage, rows.Err()
}

// one reads an item. It returns a zero item if there is none.
func (tx *ledgerTx) one(ctx context.Context, id work.ID) (work.Item, error) {
	items, damage, err := tx.items(ctx, sqlWorkItem, string(id))
	switch {
	case err != nil:
		return work.Item{}, err
	case len(damage) > 0:
		return work.Item{}, damage.Err()
	case len(items) == 0:
		return work.Item{}, nil
	}
	return items[0], nil
}

// itemFields returns pointers to the fields of an item, in the order in which
// the statements name the columns.
func itemFields(r *clerk.Item) []any {
	return []any{
		&r.ID, &r.Queue, &r.Unique, &r.State, &r.Priority, &r.Ready, &r.Created, &r.Finished,
		&r.Attempts, &r.Tries, &r.Generation, &r.CheckpointAt, &r.Error,
		&r.Token, &r.Grant, &r.Owner, &r.Instance, &r.Held, &r.Cause, &r.Ended, &r.Actor, &r.Note,
		&r.Acquired, &r.Renewed, &r.Deadline, &r.TTL, &r.Progress, &r.ProgressAt, &r.Terms,
		(*[]byte)(&r.Past), (*[]byte)(&r.Payload), (*[]byte)(&r.Checkpoint), (*[]byte)(&r.Result),
		(*[]byte)(&r.Guards), &r.Partition,
	}
}

// Items reads items by their IDs and by their idempotency keys.
func (tx *ledgerTx) Items(
	ctx context.Context, ids []work.ID, uniques []clerk.Unique, _ bool,
) (all []work.Item, damage clerk.Damage, err error) {
	read := func(text string, args ...any) error {
		found, bad, err := tx.items(ctx, text, args...)
		all, damage = append(all, found...), append(damage, bad...)
		return err
	}
	for _, id := range ids {
		if err := read(sqlWorkItem, string(id)); err != nil {
			return nil, nil, err
		}
	}
	for _, u := range uniques {
		if err := read(sqlWorkUnique, u.Queue, u.Name); err != nil {
			return nil, nil, err
		}
	}
	return all, damage, nil
}

// write runs a statement over all columns for each item. It returns the items
// for which the statement has changed a row.
func (tx *ledgerTx) write(ctx context.Context, text string, items []work.Item) (written []work.ID, err error) {
	for _, it := range items {
		r, err := clerk.Row(it)
		if err != nil {
			return nil, err
		}
		n, err := tx.exec(ctx, text, values(itemFields(&r))...)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			written = append(written, it.ID)
		}
	}
	return written, nil
}

// values returns the values that fields point to. Empty bytes become NULL.
func values(fields []any) []any {
	out := make([]any, len(fields))
	for i, f := range fields {
		switch v := f.(type) {
		case *string:
			out[i] = *v
		case **string:
			if *v != nil {
				out[i] = **v
			}
		case *int:
			out[i] = int64(*v)
		case *int64:
			out[i] = *v
		case **int64:
			if *v != nil {
				out[i] = **v
			}
		case *bool:
			out[i] = *v
		case *[]byte:
			if len(*v) > 0 {
				out[i] = *v
			}
		}
	}
	return out
}

func (tx *ledgerTx) exec(ctx context.Context, text string, args ...any) (int64, error) {
	done, err := tx.session.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

// Insert writes new items. It returns those whose ID and idempotency key were
// free.
func (tx *ledgerTx) Insert(ctx context.Context, items []work.Item) ([]work.ID, error) {
	return tx.write(ctx, sqlWorkInsert, items)
}

// Update writes items that are already there.
func (tx *ledgerTx) Update(ctx context.Context, items []work.Item) error {
	written, err := tx.write(ctx, sqlWorkUpdate, items)
	return allWritten(len(written), len(items), err)
}

func allWritten(n, want int, err error) error {
	if err == nil && n != want {
		return fmt.Errorf("%d of %d rows were written", n, want)
	}
	return err
}

func effectFields(r *clerk.Effect) []any {
	return []any{
		&r.Item, &r.Generation, &r.Name, &r.Queue, &r.To, &r.AtMostOnce, &r.Token, &r.Grant, &r.Owner,
		&r.State, &r.Attempts, &r.Ready, &r.Sender, &r.Created,
		&r.Settled, &r.Error, &r.Actor, &r.Note, (*[]byte)(&r.Body),
	}
}

// effects reads the effects that a statement over all columns finds.
func (tx *ledgerTx) effects(ctx context.Context, text string, args ...any) (effects []work.Effect, err error) {
	rows, err := tx.session.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r clerk.Effect
		if err := rows.Scan(effectFields(&r)...); err != nil {
			return nil, err
		}
		effects = append(effects, r.Read())
	}
	return effects, rows.Err()
}

func (tx *ledgerTx) writeEffects(ctx context.Context, text string, effects []work.Effect) (n int, err error) {
	for _, e := range effects {
		r := clerk.EffectRow(e)
		changed, err := tx.exec(ctx, text, values(effectFields(&r))...)
		if err != nil {
			return n, err
		}
		n += int(changed)
	}
	return n, nil
}

// Emit writes new effects. It leaves those that are already there as they are.
func (tx *ledgerTx) Emit(ctx context.Context, effects []work.Effect) error {
	_, err := tx.writeEffects(ctx, sqlWorkEmit, effects)
	return err
}

// Effects reads effects by their IDs.
func (tx *ledgerTx) Effects(ctx context.Context, ids []work.EffectID) (all []work.Effect, err error) {
	for _, id := range ids {
		found, err := tx.effects(ctx, sqlWorkEffect, string(id.Item), id.Generation, id.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// UpdateEffects writes effects that are already there.
func (tx *ledgerTx) UpdateEffects(ctx context.Context, effects []work.Effect) error {
	n, err := tx.writeEffects(ctx, sqlWorkEffectUpdate, effects)
	return allWritten(n, len(effects), err)
}

// Record writes refusals.
func (tx *ledgerTx) Record(ctx context.Context, refusals []work.Refusal) error {
	for _, r := range refusals {
		row := clerk.RefusalRow(r)
		if _, err := tx.exec(ctx, sqlWorkRefuse, values(refusalFields(&row))...); err != nil {
			return err
		}
	}
	return nil
}

func refusalFields(r *clerk.Refusal) []any {
	return []any{
		&r.At, &r.Item, &r.Queue, &r.Verb, &r.Why,
		&r.Presented, &r.PresentedGrant, &r.PresentedOwner, &r.Newest, &r.NewestGrant, &r.NewestOwner,
	}
}

// Marks reads the marks of dispatchers.
func (tx *ledgerTx) Marks(ctx context.Context, keys []string) (map[string]fence.Mark, error) {
	marks := map[string]fence.Mark{}
	for _, key := range keys {
		var token int64
		var grant string
		err := tx.session.QueryRowContext(ctx, sqlWorkMark, key).Scan(&token, &grant)
		switch {
		case err == nil:
			marks[key] = fence.Mark{Key: key, Token: fence.Token(token), Grant: fence.Grant(grant)}
		case !errors.Is(err, sql.ErrNoRows):
			return nil, err
		}
	}
	return marks, nil
}

// KeepMarks writes marks.
func (tx *ledgerTx) KeepMarks(ctx context.Context, marks map[string]fence.Mark) error {
	for key, m := range marks {
		if _, err := tx.exec(ctx, sqlWorkMarkKeep, key, int64(m.Token), string(m.Grant)); err != nil {
			return err
		}
	}
	return nil
}
