package clerk

import (
	"cmp"
	"slices"
	"time"

	"github.com/croft-dev/croft/work"
)

// Count is the number of rows of a queue that are alike, and their earliest
// times.
type Count struct {
	Queue     string `json:"queue"`
	Kind      string `json:"kind"` // item, effect or refusal
	State     string `json:"state"`
	Later     bool   `json:"later"`  // waiting for a later time
	Lapsed    bool   `json:"lapsed"` // its deadline has passed
	N         int64  `json:"n"`
	Oldest    *int64 `json:"oldest"`
	Heartbeat *int64 `json:"heartbeat"`
	Progress  *int64 `json:"progress"`
}

// Counts adds up counts to the statistics of each queue.
type Counts struct{ queues map[string]*work.Stats }

// Add adds one count.
func (all *Counts) Add(c Count) {
	if all.queues == nil {
		all.queues = map[string]*work.Stats{}
	}
	s := all.queues[c.Queue]
	if s == nil {
		s = &work.Stats{Queue: c.Queue}
		all.queues[c.Queue] = s
	}
	switch c.Kind {
	case "refusal":
		s.Refusals += c.N
	case "effect":
		addEffects(s, work.EffectState(c.State), c.N)
	default:
		addItems(s, c)
	}
}

func addEffects(s *work.Stats, state work.EffectState, n int64) {
	switch state {
	case work.Pending:
		s.Pending += n
	case work.Sent:
		s.Sent += n
	case work.Failed:
		s.Failed += n
	case work.Unknown:
		s.Unknown += n
	}
}

func addItems(s *work.Stats, c Count) {
	switch work.State(c.State) {
	case work.Waiting:
		if c.Later {
			s.Scheduled += c.N
			return
		}
		s.Ready += c.N
		earliest(&s.Oldest, c.Oldest)
	case work.Running:
		s.Running += c.N
		if c.Lapsed {
			s.Lapsed += c.N
		}
		earliest(&s.Heartbeat, c.Heartbeat)
		earliest(&s.Progress, c.Progress)
	case work.Done:
		s.Done += c.N
	case work.Dead:
		s.Dead += c.N
	case work.Cancelled:
		s.Cancelled += c.N
	}
}

func earliest(t *time.Time, us *int64) {
	if us != nil {
		work.Earliest(t, Time(us))
	}
}

// Stats returns the statistics, ordered by the name of the queue.
func (all *Counts) Stats() []work.Stats {
	var stats []work.Stats
	for _, s := range all.queues {
		stats = append(stats, *s)
	}
	slices.SortFunc(stats, func(a, b work.Stats) int { return cmp.Compare(a.Queue, b.Queue) })
	return stats
}
