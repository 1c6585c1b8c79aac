package sqlite

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// readOnly calls do outside of any transaction, for reading. It waits for no
// writer.
func (l *Ledger) readOnly(ctx context.Context, do func(tx *ledgerTx) error) error {
	err := l.store.withDatabase(ctx, func(b *base) error { return do(&ledgerTx{ledger: l, session: b.db}) })
	if err != nil {
		return store.Unknown(err)
	}
	return nil
}

// Get reads an item with its payload, checkpoint, result and history.
func (l *Ledger) Get(ctx context.Context, id work.ID) (work.Item, error) {
	if err := id.Check(); err != nil {
		return work.Item{}, err
	}
	var it work.Item
	err := l.readOnly(ctx, func(tx *ledgerTx) (err error) { it, err = tx.one(ctx, id); return err })
	switch {
	case err != nil:
		return work.Item{}, err
	case it.IsZero():
		return work.Item{}, &work.NotFoundError{What: "item " + string(id)}
	}
	return it, nil
}

// List yields items in the order of their IDs, or backwards if q.Newest is set.
// They have no payload, checkpoint, result or history.
func (l *Ledger) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	var last *string
	if q.After != "" {
		last = (*string)(&q.After)
	}
	text := "" // chosen with the first page
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) (items []work.Item, read int, err error) {
		var damage clerk.Damage
		err = l.readOnly(ctx, func(tx *ledgerTx) (err error) {
			if text == "" {
				if text, err = tx.listing(ctx, q); err != nil {
					return err
				}
			}
			after := ""
			switch {
			case last != nil:
				after = *last
			case q.Newest:
				after = "g" // IDs are hexadecimal: all lie before it
			}
			items, damage, err = tx.items(ctx, text, q.Queue, list(q.States), q.Owner, after, n)
			return err
		})
		for i := range items {
			items[i].Record.History = nil // the statements leave it out
		}
		last = clerk.Last(last, items, damage, q.Newest)
		if err == nil && len(damage) > 0 {
			err = store.Unknown(damage.Err())
		}
		return items, len(items) + len(damage), err
	})
}

// few is the largest number of items that work_list_few is used for. That
// statement reads all of them again for each page.
const few = 20 * page

// listing chooses the statement that answers a query. If the query does not ask
// for done items and only a few others are there, the statement finds those
// without reading the done ones. Otherwise it is cheaper to read all items
// once.
func (tx *ledgerTx) listing(ctx context.Context, q work.Query) (string, error) {
	texts := sqlWorkList
	if len(q.States) > 0 && !slices.Contains(q.States, work.Done) {
		n := 0
		if err := tx.session.QueryRowContext(ctx, sqlWorkFew, list(q.States), few+1).Scan(&n); err != nil {
			return "", err
		}
		if n <= few {
			texts = sqlWorkListFew
		}
	}
	return texts.Text(q.Newest), nil
}

// Effects yields effects in the order of their IDs.
func (l *Ledger) Effects(ctx context.Context, q work.EffectQuery) iter.Seq2[work.Effect, error] {
	last := q.After
	if last.Item == "" {
		last.Generation = -1
	}
	const bodies = 50 // for one page: they may be large
	return clerk.Pages(bodies, q.Limit, q.Check(), func(n int) (effects []work.Effect, read int, err error) {
		var orphaned any
		text := sqlWorkEffects
		if q.Orphaned {
			text = sqlWorkEffectsOrphaned
			now, err := l.Now(ctx)
			if err != nil {
				return nil, 0, err
			}
			orphaned = now.UnixMicro()
		}
		err = l.readOnly(ctx, func(tx *ledgerTx) (err error) {
			effects, err = tx.effects(ctx, text, string(q.Item), q.Queue, list(q.States), orphaned,
				string(last.Item), last.Generation, last.Name, n)
			return err
		})
		if len(effects) > 0 {
			last = effects[len(effects)-1].EffectID
		}
		return effects, len(effects), err
	})
}

// Refusals yields refusals, the newest first.
func (l *Ledger) Refusals(ctx context.Context, q work.RefusalQuery) iter.Seq2[work.Refusal, error] {
	since, last := clerk.From(q.Since), int64(0)
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) (refusals []work.Refusal, read int, err error) {
		err = l.readOnly(ctx, func(tx *ledgerTx) error {
			refusals = nil
			rows, err := tx.session.QueryContext(ctx, sqlWorkRefusals, string(q.Item), q.Queue, since, last, n)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var r clerk.Refusal
				if err := rows.Scan(append([]any{&last}, refusalFields(&r)...)...); err != nil {
					return err
				}
				refusals = append(refusals, r.Read())
			}
			return rows.Err()
		})
		return refusals, len(refusals), err
	})
}

// Stats counts items, effects and refusals by queue. It reads all items.
func (l *Ledger) Stats(ctx context.Context, queue string) ([]work.Stats, error) {
	if err := (work.Query{Queue: queue}).Check(); err != nil {
		return nil, err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return nil, err
	}
	var all []work.Stats
	err = l.readOnly(ctx, func(tx *ledgerTx) error {
		var counts clerk.Counts
		rows, err := tx.session.QueryContext(ctx, sqlWorkStats, now.UnixMicro(), queue)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var c clerk.Count
			err := rows.Scan(&c.Queue, &c.Kind, &c.State, &c.Later, &c.Lapsed, &c.N,
				&c.Oldest, &c.Heartbeat, &c.Progress)
			if err != nil {
				return err
			}
			counts.Add(c)
		}
		all = counts.Stats()
		return rows.Err()
	})
	return all, err
}

// Backlog counts open items and effects. It reads no finished items.
func (l *Ledger) Backlog(ctx context.Context, stallAfter time.Duration) (work.Backlog, error) {
	now, err := l.Now(ctx)
	if err != nil {
		return work.Backlog{}, err
	}
	var open []clerk.Open
	err = l.readOnly(ctx, func(tx *ledgerTx) error {
		open = nil
		rows, err := tx.session.QueryContext(ctx, sqlWorkBacklog, now.UnixMicro(), now.Add(-stallAfter).UnixMicro(),
			work.MaxCountedDead, work.MaxCountedEffects)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r clerk.Open
			err := rows.Scan(&r.Kind, &r.Name, &r.State, &r.Past, &r.N, &r.Stalled,
				&r.Oldest, &r.Heartbeat, &r.Progress)
			if err != nil {
				return err
			}
			open = append(open, r)
		}
		return rows.Err()
	})
	if err != nil {
		return work.Backlog{}, err
	}
	return clerk.Backlog(now, open), nil
}

// Prune deletes old items and refusals, the oldest first, at most limit of
// each.
func (l *Ledger) Prune(ctx context.Context, r work.Retention, limit int) (work.Pruned, error) {
	r, err := r.Pruning(limit)
	if err != nil {
		return work.Pruned{}, err
	}
	pruned, err := answer(ctx, l, func(ctx context.Context, tx *ledgerTx) (work.Pruned, error) {
		return tx.prune(ctx, r, limit)
	})
	if err != nil {
		return work.Pruned{}, store.Unknown(err)
	}
	return pruned, nil
}

func (tx *ledgerTx) prune(ctx context.Context, r work.Retention, limit int) (pruned work.Pruned, err error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return pruned, err
	}
	ids, err := tx.old(ctx, clerk.Cut(now, r.Done), clerk.Cut(now, r.Dead), limit)
	if err != nil {
		return pruned, err
	}
	for _, id := range ids {
		if _, err := tx.exec(ctx, sqlWorkForgetEffects, id); err != nil {
			return pruned, err
		}
		if _, err := tx.exec(ctx, sqlWorkForget, id); err != nil {
			return pruned, err
		}
	}
	refusals, err := tx.exec(ctx, sqlWorkForgetRefusals, clerk.Cut(now, r.Refusals), limit)
	return work.Pruned{Items: len(ids), Refusals: int(refusals)}, err
}

func (tx *ledgerTx) old(ctx context.Context, done, dead int64, limit int) (ids []string, err error) {
	rows, err := tx.session.QueryContext(ctx, sqlWorkOld, done, dead, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
