package work

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"
)

// Surveyor is a ledger that can count open items and effects at a bounded cost.
// The cost of [Ledger.Stats] grows with the number of finished items. That of
// Backlog does not, so a monitoring system may ask for it again and again.
type Surveyor interface {
	// Backlog counts what waits, runs or was given up. Items that have been
	// idle for stallAfter count as stalled. A ledger that has the method but
	// cannot tell returns an error that matches errors.ErrUnsupported.
	Backlog(ctx context.Context, stallAfter time.Duration) (Backlog, error)
}

// The largest numbers that a Backlog counts of what may pile up without end.
// Beyond them it is counted in part.
const (
	MaxCountedDead    = 10_000  // dead and cancelled items, in the order of queue
	MaxCountedEffects = 100_000 // pending, unknown or failed effects: those with the oldest Ready
)

// Backlog is what a ledger holds that is not done or sent, at one moment on its
// clock.
type Backlog struct {
	Now          time.Time
	Queues       []QueueBacklog       // ordered by name
	Destinations []DestinationBacklog // ordered by name
}

// QueueBacklog counts the open items of one queue.
type QueueBacklog struct {
	Queue     string
	Ready     int64 // waiting, and may be claimed now
	Scheduled int64 // waiting for a later time
	Running   int64 // including lapsed and stalled ones
	Lapsed    int64 // running, and the owner's deadline has passed
	Stalled   int64 // running, not lapsed, and without progress for the given time
	Dead      int64
	// Oldest is the Ready time of the item that has been ready longest.
	// Heartbeat and Progress are the oldest heartbeat and progress of all
	// running items. Each is zero if there is no such item.
	Oldest, Heartbeat, Progress time.Time
}

// DestinationBacklog counts the open effects for one destination.
type DestinationBacklog struct {
	To       string
	Pending  int64 // including those that wait for a later attempt
	Due      int64 // pending, and may be delivered now
	Unknown  int64 // including those under way
	Orphaned int64 // unknown, and the dispatcher has not settled them in time
	Failed   int64
	// OldestDue is the Ready time of the effect that has been due longest,
	// OldestOrphan that of the effect that has been orphaned longest, and
	// OldestFailed when the first of the failed ones was given up. Each is zero
	// if there is no such effect.
	OldestDue, OldestOrphan, OldestFailed time.Time
}

// Count adds an item to the counts of its queue, at now.
func (b *QueueBacklog) Count(it Item, now time.Time, stallAfter time.Duration) {
	switch it.State {
	case Waiting:
		if it.Ready.After(now) {
			b.Scheduled++
			return
		}
		b.Ready++
		Earliest(&b.Oldest, it.Ready)
	case Running:
		b.Running++
		switch {
		case it.Lapsed(now):
			b.Lapsed++
		case !it.Progressed().After(now.Add(-stallAfter)):
			b.Stalled++
		}
		Earliest(&b.Heartbeat, it.Heartbeat())
		Earliest(&b.Progress, it.Progressed())
	case Dead:
		b.Dead++
	}
}

// Count adds an effect to the counts of its destination, at now.
func (b *DestinationBacklog) Count(e Effect, now time.Time) {
	due := !e.Ready.After(now)
	switch e.State {
	case Pending:
		b.Pending++
		if due {
			b.Due++
			Earliest(&b.OldestDue, e.Ready)
		}
	case Unknown:
		b.Unknown++
		if due {
			b.Orphaned++
			Earliest(&b.OldestOrphan, e.Ready)
		}
	case Failed:
		b.Failed++
		Earliest(&b.OldestFailed, e.Settled)
	}
}

// Earliest sets *t to at, if *t is zero or later.
func Earliest(t *time.Time, at time.Time) {
	if t.IsZero() || at.Before(*t) {
		*t = at
	}
}

// BacklogOf counts items and effects by the law. It leaves out queues and
// destinations of which nothing is open.
func BacklogOf(items iter.Seq[Item], effects iter.Seq[Effect], now time.Time, stallAfter time.Duration) Backlog {
	queues, to := map[string]QueueBacklog{}, map[string]DestinationBacklog{}
	for it := range items {
		if it.State == Done || it.State == Cancelled {
			continue
		}
		q := queues[it.Queue]
		q.Queue = it.Queue
		q.Count(it, now, stallAfter)
		queues[it.Queue] = q
	}
	for e := range effects {
		if e.State == Sent {
			continue
		}
		d := to[e.To]
		d.To = e.To
		d.Count(e, now)
		to[e.To] = d
	}
	return Backlog{
		Now: now,
		Queues: slices.SortedFunc(maps.Values(queues), func(a, b QueueBacklog) int {
			return cmp.Compare(a.Queue, b.Queue)
		}),
		Destinations: slices.SortedFunc(maps.Values(to), func(a, b DestinationBacklog) int {
			return cmp.Compare(a.To, b.To)
		}),
	}
}
