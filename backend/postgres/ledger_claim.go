package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Claim takes items in one round trip, unless a queue has rules or partitions.
// It skips items that others have locked. If it finds fewer than c.Limit and a
// worker here waits for one of the queues (see [Ledger.Wake]), it arms the
// queues: the next change there notifies.
func (l *Ledger) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	items, armed, err := l.claim(ctx, c, l.listener.listens(c.Queues...))
	if err == nil && armed {
		l.listener.echo(c.Queues)
		if len(items) == 0 {
			items, _, err = l.claim(ctx, c, false) // work added before the queues were armed told nobody
		}
	}
	return items, err
}

func (l *Ledger) claim(ctx context.Context, c work.Claim, arm bool) (items []work.Item, armed bool, err error) {
	rows, err := l.call(ctx, l.sql.workClaim, l.claimArgs(c, arm)...)
	if err != nil {
		return nil, false, store.Unknown(explainWork(ctx, err))
	}
	if isGoverned(rows) {
		return l.claimGoverned(ctx, c, arm)
	}
	if items, armed, err = l.readClaim(ctx, c, rows); err != nil {
		return nil, false, store.Unknown(err)
	}
	return items, armed, nil
}

// isGoverned reports whether a claim has found that a queue has rules or
// partitions.
func isGoverned(rows []string) bool { return len(rows) == 1 && rows[0] == `{"governed": true}` }

// claimGoverned claims from queues that have rules or partitions, in a
// transaction. If the transaction of another claim keeps a queue to itself for
// long, the claim goes on with the other queues.
func (l *Ledger) claimGoverned(
	ctx context.Context, c work.Claim, arm bool,
) (items []work.Item, armed bool, err error) {
	claim := func(wait bool) error {
		return l.within(ctx, l.lockWait, func(tx *ledgerTx) (err error) {
			items, err = tx.claimGoverned(ctx, c, wait)
			return err
		})
	}
	if err = claim(true); isKept(err) {
		err = claim(false)
	}
	if err != nil {
		return nil, false, store.Unknown(explainWork(ctx, err))
	}
	if arm && len(items) < c.Limit {
		tag, err := l.pool.Exec(ctx, l.sql.workArm, list(c.Queues))
		armed = err == nil && tag.RowsAffected() > 0
	}
	return items, armed, nil
}

// echo repeats a hint a little later for workers whose queues have just been
// armed. Another transaction may have looked at idle before the queues were
// armed, and commit after the workers looked again. It has told nobody.
func (n *workListener) echo(queues []string) {
	waits := func(w *workWaiter) bool {
		return slices.ContainsFunc(w.queues, func(q string) bool { return slices.Contains(queues, q) })
	}
	for _, d := range echoes {
		time.AfterFunc(d, func() { n.hint(waits) })
	}
}

func (l *Ledger) claimArgs(c work.Claim, arm bool) []any {
	return []any{
		l.setAt(), list(c.Queues), c.Limit, string(c.Secret.Grant()),
		c.Owner, c.Instance, micro(c.TTL), c.Again, arm,
	}
}

// readClaim reads the answer to a claim: the items, and whether the claim has
// armed its queues. It leaves out damaged items and logs them, so that they
// keep nobody from the others.
func (l *Ledger) readClaim(
	ctx context.Context, c work.Claim, rows []string,
) (items []work.Item, armed bool, err error) {
	if n := len(rows); n > 0 && rows[n-1] == `{"armed": true}` {
		rows, armed = rows[:n-1], true
	}
	items, damage, err := readClaimed(rows, c)
	for _, d := range damage {
		l.logger().WarnContext(ctx, "croft: an item was claimed whose row is damaged; it is left to lapse",
			"item", string(d.Item), "why", d.Error())
	}
	return items, armed, err
}
