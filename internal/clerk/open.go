package clerk

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/croft-dev/croft/work"
)

// Open is the number of open rows of a queue or destination that are alike, and
// their earliest times.
type Open struct {
	Kind  string `json:"kind"` // item or effect
	Name  string `json:"name"` // of the queue or destination
	State string `json:"state"`
	// Past says that the row's time has come: a waiting item or pending effect
	// is due, a running item has lapsed, an unknown effect is orphaned.
	Past      bool   `json:"past"`
	N         int64  `json:"n"`
	Stalled   int64  `json:"stalled"` // of running items, lapsed ones included
	Oldest    *int64 `json:"oldest"`
	Heartbeat *int64 `json:"heartbeat"`
	Progress  *int64 `json:"progress"`
}

// Backlog adds up open rows.
func Backlog(now time.Time, rows []Open) work.Backlog {
	queues, to := map[string]work.QueueBacklog{}, map[string]work.DestinationBacklog{}
	for _, r := range rows {
		if r.Kind == "effect" {
			d := to[r.Name]
			d.To = r.Name
			openEffects(&d, r)
			to[r.Name] = d
		} else if work.State(r.State) != work.Cancelled {
			q := queues[r.Name]
			q.Queue = r.Name
			openItems(&q, r)
			queues[r.Name] = q
		}
	}
	return work.Backlog{
		Now: now,
		Queues: slices.SortedFunc(maps.Values(queues), func(a, b work.QueueBacklog) int {
			return cmp.Compare(a.Queue, b.Queue)
		}),
		Destinations: slices.SortedFunc(maps.Values(to), func(a, b work.DestinationBacklog) int {
			return cmp.Compare(a.To, b.To)
		}),
	}
}

func openItems(q *work.QueueBacklog, r Open) {
	switch work.State(r.State) {
	case work.Waiting:
		if !r.Past {
			q.Scheduled += r.N
			return
		}
		q.Ready += r.N
		earliest(&q.Oldest, r.Oldest)
	case work.Running:
		q.Running += r.N
		if r.Past {
			q.Lapsed += r.N
		} else {
			q.Stalled += r.Stalled
		}
		earliest(&q.Heartbeat, r.Heartbeat)
		earliest(&q.Progress, r.Progress)
	case work.Dead:
		q.Dead += r.N
	}
}

func openEffects(d *work.DestinationBacklog, r Open) {
	switch work.EffectState(r.State) {
	case work.Pending:
		d.Pending += r.N
		if r.Past {
			d.Due += r.N
			earliest(&d.OldestDue, r.Oldest)
		}
	case work.Unknown:
		d.Unknown += r.N
		if r.Past {
			d.Orphaned += r.N
			earliest(&d.OldestOrphan, r.Oldest)
		}
	case work.Failed:
		d.Failed += r.N
		earliest(&d.OldestFailed, r.Oldest)
	}
}
