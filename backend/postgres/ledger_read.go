package postgres

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Get reads an item with its payload, checkpoint, result and history.
func (l *Ledger) Get(ctx context.Context, id work.ID) (work.Item, error) {
	return l.get(ctx, id, l.texts)
}

// texts sends a statement that reads, and returns its rows.
func (l *Ledger) texts(ctx context.Context, text string, args ...any) (rows []string, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	return l.call(ctx, text, args...)
}

// look is texts with an error explained for the caller.
func (l *Ledger) look(ctx context.Context, text string, args ...any) ([]string, error) {
	rows, err := l.texts(ctx, text, args...)
	if err != nil {
		return nil, store.Unknown(explainWork(ctx, err))
	}
	return rows, nil
}

// get reads an item with the function texts, which sends a statement.
func (l *Ledger) get(
	ctx context.Context, id work.ID, texts func(context.Context, string, ...any) ([]string, error),
) (work.Item, error) {
	if err := id.Check(); err != nil {
		return work.Item{}, err
	}
	rows, err := texts(ctx, l.sql.workGet, string(id))
	if err != nil {
		return work.Item{}, store.Unknown(explainWork(ctx, err))
	}
	if len(rows) == 0 {
		return work.Item{}, &work.NotFoundError{What: "item " + string(id)}
	}
	items, damage, err := readItems(rows)
	if err == nil {
		err = damage.Err()
	}
	if err != nil {
		return work.Item{}, store.Unknown(err)
	}
	return items[0], nil
}

// List yields items by their ID.
func (l *Ledger) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	last, texts := nullable(string(q.After)), l.sql.workList
	if len(q.States) > 0 && !slices.Contains(q.States, work.Done) { // few items among many that are done
		texts = l.sql.workListFew
	}
	text := texts.Text(q.Newest)
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) ([]work.Item, int, error) {
		rows, err := l.look(ctx, text, q.Queue, maybe(q.States), q.Owner, last, n)
		if err != nil {
			return nil, 0, err
		}
		items, damage, err := readItems(rows)
		if err != nil {
			return nil, 0, store.Unknown(err)
		}
		for i := range items {
			items[i].Record.History = nil // the statement does not read the past
		}
		last = clerk.Last(last, items, damage, q.Newest)
		if len(damage) > 0 {
			err = store.Unknown(damage.Err())
		}
		return items, len(rows), err
	})
}

// nullable returns nil, which is NULL, for an empty text.
func nullable(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Effects yields effects in the order of their identity.
func (l *Ledger) Effects(ctx context.Context, q work.EffectQuery) iter.Seq2[work.Effect, error] {
	last := q.After
	return clerk.Pages(page/20, q.Limit, q.Check(), func(n int) ([]work.Effect, int, error) {
		var orphaned *int64
		text := l.sql.workEffects
		if q.Orphaned {
			text = l.sql.workEffectsOrphaned
			now, err := l.Now(ctx)
			if err != nil {
				return nil, 0, err
			}
			orphaned = clerk.Micro(now)
		}
		rows, err := l.look(ctx, text, nullable(string(q.Item)), q.Queue, maybe(q.States), orphaned,
			nullable(string(last.Item)), last.Generation, last.Name, n)
		if err != nil {
			return nil, 0, err
		}
		effects, err := readEffects(rows)
		if err != nil {
			return nil, 0, store.Unknown(err)
		}
		if len(effects) > 0 {
			last = effects[len(effects)-1].EffectID
		}
		return effects, len(effects), nil
	})
}

// Refusals yields refusals, the newest first.
func (l *Ledger) Refusals(ctx context.Context, q work.RefusalQuery) iter.Seq2[work.Refusal, error] {
	since, last := clerk.From(q.Since), int64(0)
	return clerk.Pages(page, q.Limit, q.Check(), func(n int) ([]work.Refusal, int, error) {
		rows, err := l.look(ctx, l.sql.workRefusals, string(q.Item), q.Queue, since, last, n)
		if err != nil {
			return nil, 0, err
		}
		refusals := make([]work.Refusal, len(rows))
		for i, text := range rows {
			var row struct {
				clerk.Refusal
				ID int64 `json:"id"`
			}
			if err := json.Unmarshal([]byte(text), &row); err != nil {
				return nil, 0, err
			}
			refusals[i], last = row.Read(), row.ID
		}
		return refusals, len(refusals), nil
	})
}

// Stats counts by queue. It reads all items.
func (l *Ledger) Stats(ctx context.Context, queue string) ([]work.Stats, error) {
	if err := (work.Query{Queue: queue}).Check(); err != nil {
		return nil, err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := l.texts(ctx, l.sql.workStats, now.UnixMicro(), queue)
	if err != nil {
		return nil, store.Unknown(explainWork(ctx, err))
	}
	var counts clerk.Counts
	for _, text := range rows {
		var c clerk.Count
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return nil, store.Unknown(err)
		}
		counts.Add(c)
	}
	return counts.Stats(), nil
}

// Backlog counts open items and effects. It reads no finished items, also
// before the server has any statistics.
func (l *Ledger) Backlog(ctx context.Context, stallAfter time.Duration) (work.Backlog, error) {
	now, err := l.Now(ctx)
	if err == nil {
		err = l.make(ctx)
	}
	if err != nil {
		return work.Backlog{}, err
	}
	var rows []string
	err = l.within(ctx, l.lockWait, func(tx *ledgerTx) (err error) {
		if _, err = tx.session.exec(ctx, l.sql.workByIndex); err != nil {
			return err
		}
		rows, err = tx.session.texts(ctx, l.sql.workBacklog, now.UnixMicro(), now.Add(-stallAfter).UnixMicro(),
			work.MaxCountedDead, work.MaxCountedEffects)
		return err
	})
	if err != nil {
		return work.Backlog{}, store.Unknown(explainWork(ctx, err))
	}
	open := make([]clerk.Open, len(rows))
	for i, text := range rows {
		if err := json.Unmarshal([]byte(text), &open[i]); err != nil {
			return work.Backlog{}, store.Unknown(err)
		}
	}
	return clerk.Backlog(now, open), nil
}

// Prune deletes finished items and old refusals, the oldest first. It skips
// rows that others have locked.
func (l *Ledger) Prune(ctx context.Context, r work.Retention, limit int) (work.Pruned, error) {
	r, err := r.Pruning(limit)
	if err != nil {
		return work.Pruned{}, err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return work.Pruned{}, err
	}
	var pruned work.Pruned
	err = l.within(ctx, l.lockWait, func(tx *ledgerTx) error {
		// First lock, then look again: an operator may have made an effect
		// pending meanwhile.
		old, err := tx.session.texts(ctx, l.sql.workPrunable, clerk.Cut(now, r.Done), clerk.Cut(now, r.Dead), limit)
		if err != nil {
			return err
		}
		args := []any{list(old), clerk.Cut(now, r.Refusals), limit}
		return tx.session.row(ctx, l.sql.workPrune, args, &pruned.Items, &pruned.Refusals)
	})
	if err != nil {
		return work.Pruned{}, store.Unknown(explain(ctx, err))
	}
	return pruned, nil
}
