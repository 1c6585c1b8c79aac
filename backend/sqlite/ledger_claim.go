package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// Claim takes items in one transaction.
func (l *Ledger) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	c.Queues = slices.Clone(c.Queues) // the transaction may outlive this call
	items, err := answer(ctx, l, func(ctx context.Context, tx *ledgerTx) ([]work.Item, error) {
		return tx.claim(ctx, c)
	})
	if err != nil {
		return nil, store.Unknown(err)
	}
	return items, nil
}

// answer calls do in a transaction and returns its result. The result goes
// through a channel: if the caller has left, nobody reads it.
func answer[T any](ctx context.Context, l *Ledger, do func(context.Context, *ledgerTx) (T, error)) (T, error) {
	found := make(chan T, 1)
	err := l.within(ctx, func(ctx context.Context, tx *ledgerTx) error {
		select {
		case <-found: // this is the second try: the tables were missing
		default:
		}
		v, err := do(ctx, tx)
		found <- v
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-found, nil
}

func (tx *ledgerTx) claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	queues := slices.Compact(slices.Sorted(slices.Values(c.Queues)))
	if c.Again {
		var running []work.Item
		for _, q := range queues {
			found, _, err := tx.items(ctx, sqlWorkGranted, q, string(c.Secret.Grant()))
			if err != nil {
				return nil, err
			}
			running = append(running, found...)
		}
		if len(running) > 0 {
			slices.SortFunc(running, byOrder)
			return running, nil
		}
	}
	now := tenure.Time(tx.ledger.store.options.now())
	for _, q := range queues {
		governed := false
		if err := tx.session.QueryRowContext(ctx, sqlWorkGoverned, q).Scan(&governed); err != nil {
			return nil, err
		}
		if governed {
			return clerk.Claim(ctx, tx, c, now)
		}
	}
	var taken []work.Item
	for level := work.MaxPriority + 1; len(taken) < c.Limit; {
		var err error
		if level, err = tx.nextLevel(ctx, queues, level); err != nil {
			return nil, err
		}
		if level < -work.MaxPriority {
			break
		}
		var ready []work.Item
		for _, q := range queues {
			after, id := int64(-1<<63), "" // read on behind items that cannot be granted
			for found := 0; found < c.Limit-len(taken); {
				want := c.Limit - len(taken) - found
				some, damage, err := tx.items(ctx, sqlWorkReady, q, level, now.UnixMicro(), after, id, want, "")
				if err != nil {
					return nil, err
				}
				for _, it := range some {
					after, id = it.Ready.UnixMicro(), string(it.ID)
					if c.Grantable(it, now) {
						ready = append(ready, it)
						found++
					}
				}
				for _, bad := range damage {
					if at := bad.Ready.UnixMicro(); at > after || at == after && string(bad.Item) > id {
						after, id = at, string(bad.Item)
					}
				}
				if len(some)+len(damage) < want {
					break
				}
			}
		}
		slices.SortFunc(ready, byOrder)
		for _, it := range ready[:min(len(ready), c.Limit-len(taken))] {
			next, err := work.Grant(it, c, now)
			if err != nil {
				return nil, err
			}
			taken = append(taken, next)
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	return taken, tx.Update(ctx, taken)
}

// nextLevel returns the highest priority below the given one at which an item
// waits. If there is none, it returns a number below all priorities.
func (tx *ledgerTx) nextLevel(ctx context.Context, queues []string, below int) (int, error) {
	level := -work.MaxPriority - 1
	for _, q := range queues {
		var top sql.NullInt64
		err := tx.session.QueryRowContext(ctx, sqlWorkLevel, q, below).Scan(&top)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		if top.Valid {
			level = max(level, int(top.Int64))
		}
	}
	return level, nil
}

func byOrder(a, b work.Item) int {
	switch {
	case a.Before(b):
		return -1
	case b.Before(a):
		return 1
	}
	return 0
}
