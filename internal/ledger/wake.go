package ledger

import (
	"context"
	"slices"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

type waiter struct {
	wants work.Wanted
	c     chan struct{}
}

// Wake returns a channel that receives when something wanted is ready.
func (l *Ledger) Wake(ctx context.Context, w work.Wanted) (<-chan struct{}, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	b := l.shared
	one := &waiter{wants: w, c: make(chan struct{}, 1)}
	b.mu.Lock()
	b.waiting[one] = struct{}{}
	b.mu.Unlock()
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting, one)
		close(one.c)
	})
	return one.c, nil
}

// wake wakes all waiters for which something is ready. It is called after every
// change, with the mutex held.
func (b *shared) wake() {
	if !b.law.Wakes || len(b.waiting) == 0 {
		return
	}
	now := tenure.Time(b.now())
	ready := map[string]bool{}
	for _, it := range b.items {
		if it.State == work.Waiting && !it.Ready.After(now) && !b.rules[ruleKey{it.Queue, ""}].Paused {
			ready[it.Queue] = true
		}
	}
	pending := false
	for _, e := range b.effects {
		pending = pending || e.State == work.Pending && !e.Ready.After(now)
	}
	for w := range b.waiting {
		if w.wants.Effects && pending || slices.ContainsFunc(w.wants.Queues, func(q string) bool { return ready[q] }) {
			select {
			case w.c <- struct{}{}:
			default:
			}
		}
	}
}
