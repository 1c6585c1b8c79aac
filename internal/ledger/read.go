package ledger

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// look calls f with the mutex held, unless there is a reason not to.
func (l *Ledger) look(ctx context.Context, bad error, f func(b *shared)) error {
	if bad != nil {
		return bad
	}
	if err := l.usable(ctx); err != nil {
		return err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	f(l.shared)
	return nil
}

// yielded returns a sequence of at most limit values, or of the error.
func yielded[T any](found []T, limit int, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for i, v := range found {
			if limit > 0 && i == limit || !yield(v, nil) {
				return
			}
		}
	}
}

// List yields items by their ID.
func (l *Ledger) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	var found []work.Item
	err := l.look(ctx, q.Check(), func(b *shared) {
		for id, it := range b.items {
			if q.Selects(it) && (q.After == "" || q.Newest && id < q.After || !q.Newest && id > q.After) {
				found = append(found, copied(it))
			}
		}
	})
	slices.SortFunc(found, func(x, y work.Item) int {
		if q.Newest {
			x, y = y, x
		}
		return cmp.Compare(x.ID, y.ID)
	})
	return yielded(found, q.Limit, err)
}

// Effects yields effects by their identity.
func (l *Ledger) Effects(ctx context.Context, q work.EffectQuery) iter.Seq2[work.Effect, error] {
	var found []work.Effect
	err := l.look(ctx, q.Check(), func(b *shared) {
		now := tenure.Time(b.now())
		for _, e := range b.effects {
			if q.Selects(e, now) {
				found = append(found, copiedEffect(e))
			}
		}
	})
	slices.SortFunc(found, func(x, y work.Effect) int { return x.Compare(y.EffectID) })
	return yielded(found, q.Limit, err)
}

// Refusals yields refusals, the newest first.
func (l *Ledger) Refusals(ctx context.Context, q work.RefusalQuery) iter.Seq2[work.Refusal, error] {
	var found []work.Refusal
	err := l.look(ctx, q.Check(), func(b *shared) {
		for _, r := range slices.Backward(b.refusals) {
			if q.Selects(r) {
				found = append(found, r)
			}
		}
	})
	return yielded(found, q.Limit, err)
}

// Backlog counts what is open.
func (l *Ledger) Backlog(ctx context.Context, stallAfter time.Duration) (open work.Backlog, err error) {
	err = l.look(ctx, nil, func(b *shared) {
		open = work.BacklogOf(maps.Values(b.items), maps.Values(b.effects), tenure.Time(b.now()), stallAfter)
	})
	return open, err
}

// Stats counts by queue.
func (l *Ledger) Stats(ctx context.Context, queue string) ([]work.Stats, error) {
	by := map[string]*work.Stats{}
	of := func(name string) *work.Stats {
		if by[name] == nil {
			by[name] = &work.Stats{Queue: name}
		}
		return by[name]
	}
	err := l.look(ctx, work.Query{Queue: queue}.Check(), func(b *shared) {
		now := tenure.Time(b.now())
		for _, it := range b.items {
			of(it.Queue).Count(it, now)
		}
		for _, e := range b.effects {
			of(e.Queue).CountEffect(e)
		}
		for _, r := range b.refusals {
			if r.Queue != "" {
				of(r.Queue).Refusals++
			}
		}
	})
	var all []work.Stats
	for name, s := range by {
		if queue == "" || queue == name {
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(x, y work.Stats) int { return cmp.Compare(x.Queue, y.Queue) })
	return all, err
}

// Prune forgets finished items and old refusals.
func (l *Ledger) Prune(ctx context.Context, r work.Retention, limit int) (work.Pruned, error) {
	var pruned work.Pruned
	r, bad := r.Pruning(limit)
	err := l.look(ctx, bad, func(b *shared) {
		now := tenure.Time(b.now())
		of := map[work.ID][]work.Effect{}
		for _, e := range b.effects {
			of[e.Item] = append(of[e.Item], e)
		}
		for id, it := range b.items {
			if pruned.Items < limit && b.law.Forget(r, it, of[id], now) {
				delete(b.items, id)
				for _, e := range of[id] {
					delete(b.effects, e.EffectID)
				}
				pruned.Items++
			}
		}
		b.refusals = slices.DeleteFunc(b.refusals, func(f work.Refusal) bool {
			gone := pruned.Refusals < limit && r.ForgetsRefusal(f, now)
			if gone {
				pruned.Refusals++
			}
			return gone
		})
	})
	return pruned, err
}
