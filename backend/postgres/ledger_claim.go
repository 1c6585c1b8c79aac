package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Claim takes items in one round trip, without waiting for what others have locked.
func (l *Ledger) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	items, armed, err := l.claim(ctx, c, l.ear.listens(c.Queues...))
	if err == nil && armed {
		l.ear.echo(c.Queues)
		if len(items) == 0 {
			items, _, err = l.claim(ctx, c, false) // what was added before anybody was known to wait has told nobody
		}
	}
	return items, err
}

func (l *Ledger) claim(ctx context.Context, c work.Claim, arm bool) (items []work.Item, armed bool, err error) {
	rows, err := l.call(ctx, l.sql.workClaim, l.claimArgs(c, arm)...)
	if err != nil {
		return nil, false, store.Unknown(explain(ctx, err))
	}
	if items, armed, err = l.readClaim(ctx, c, rows); err != nil {
		return nil, false, store.Unknown(err)
	}
	return items, armed, nil
}

// echo gives the hints that follow a little later also to those whose queues have just become known as waited for: a change that looked before that, and is committed after they have looked again, has told nobody.
func (e *ear) echo(queues []string) {
	waits := func(w *wait) bool {
		return slices.ContainsFunc(w.queues, func(q string) bool { return slices.Contains(queues, q) })
	}
	for _, d := range echoes {
		time.AfterFunc(d, func() { e.hint(waits) })
	}
}

func (l *Ledger) claimArgs(c work.Claim, arm bool) []any {
	return []any{l.setAt(), list(c.Queues), c.Limit, string(c.Secret.Grant()), c.Owner, c.Instance, micro(c.TTL), c.Again, arm}
}

// readClaim reads what a claim has answered: the items, and whether its queues are now known to be waited for that were not before. A damaged item is nobody's work, and keeps nobody from the others.
func (l *Ledger) readClaim(ctx context.Context, c work.Claim, rows []string) (items []work.Item, armed bool, err error) {
	if n := len(rows); n > 0 && rows[n-1] == `{"armed": true}` {
		rows, armed = rows[:n-1], true
	}
	items, damage, err := readClaimed(rows, c)
	for _, d := range damage {
		l.logger().WarnContext(ctx, "croft: an item was claimed whose row is damaged; it is left to lapse", "item", string(d.Item), "why", d.Error())
	}
	return items, armed, err
}
