package work

import (
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Query selects items. The zero Query selects all.
type Query struct {
	Queue  string  // empty: of all queues
	States []State // empty: in any state
	Owner  string  // empty: of any owner; else those whose record names this one
	// Newest yields the highest ID first. After leaves out all up to and including that ID, in the order asked for: a page begins where the last one ended.
	Newest bool
	After  ID
	// Limit is how many to yield at most; 0: all.
	Limit int
}

// Check reports what is wrong with the query, or nil. A ledger yields its error.
func (q Query) Check() error {
	if err := CheckSelected(q.Queue); err != nil {
		return err
	}
	if err := checkName("owner", q.Owner, tenure.MaxName); err != nil {
		return err
	}
	for _, s := range q.States {
		if !slices.Contains(States, s) {
			return fmt.Errorf("%w state %q: items are %v", fence.ErrInvalid, s, States)
		}
	}
	if q.After != "" {
		if err := q.After.Check(); err != nil {
			return err
		}
	}
	return checkLimit(q.Limit)
}

// Selects reports whether the item matches; After and Limit apart.
func (q Query) Selects(it Item) bool {
	return (q.Queue == "" || q.Queue == it.Queue) && (len(q.States) == 0 || slices.Contains(q.States, it.State)) && (q.Owner == "" || q.Owner == it.Record.Owner)
}

// EffectQuery selects effects. The zero EffectQuery selects all.
type EffectQuery struct {
	Item   ID
	Queue  string
	States []EffectState
	// Orphaned selects only unknown effects whose dispatcher has let its time pass, by the ledger's clock.
	Orphaned bool
	// After leaves out all up to and including that identity: a page begins where the last one ended.
	After EffectID
	Limit int
}

// Check reports what is wrong with the query, or nil.
func (q EffectQuery) Check() error {
	if err := CheckSelected(q.Queue); err != nil {
		return err
	}
	for _, s := range q.States {
		if !slices.Contains(EffectStates, s) {
			return fmt.Errorf("%w state %q: effects are %v", fence.ErrInvalid, s, EffectStates)
		}
	}
	if q.Item != "" {
		if err := q.Item.Check(); err != nil {
			return err
		}
	}
	if q.After != (EffectID{}) {
		if err := q.After.Check(); err != nil {
			return err
		}
	}
	return checkLimit(q.Limit)
}

// Selects reports whether the effect matches at now; Limit apart.
func (q EffectQuery) Selects(e Effect, now time.Time) bool {
	return (q.After == EffectID{} || e.EffectID.Compare(q.After) > 0) && (q.Item == "" || q.Item == e.Item) && (q.Queue == "" || q.Queue == e.Queue) &&
		(len(q.States) == 0 || slices.Contains(q.States, e.State)) && (!q.Orphaned || e.Orphaned(now))
}

// RefusalQuery selects refusals. The zero RefusalQuery selects all.
type RefusalQuery struct {
	Item  ID
	Queue string
	Since time.Time // on the ledger's clock; zero: from the beginning
	Limit int
}

// Check reports what is wrong with the query, or nil.
func (q RefusalQuery) Check() error {
	if err := CheckSelected(q.Queue); err != nil {
		return err
	}
	if q.Item != "" {
		if err := q.Item.Check(); err != nil {
			return err
		}
	}
	return checkLimit(q.Limit)
}

// Selects reports whether the refusal matches; Limit apart.
func (q RefusalQuery) Selects(r Refusal) bool {
	return (q.Item == "" || q.Item == r.Item) && (q.Queue == "" || q.Queue == r.Queue) && !r.At.Before(q.Since)
}

// CheckSelected is [CheckQueue] for a queue in a query, where no name means all of them.
func CheckSelected(queue string) error {
	if queue == "" {
		return nil
	}
	return CheckQueue(queue)
}

func checkLimit(n int) error {
	if n < 0 {
		return fmt.Errorf("%w limit %d: it must not be negative", fence.ErrInvalid, n)
	}
	return nil
}

// Stats is the state of one queue at one moment on the ledger's clock. Counts of finished items may come from a moment before.
type Stats struct {
	Queue     string `json:"queue"`
	Ready     int64  `json:"ready"`     // waiting, and their time has come
	Scheduled int64  `json:"scheduled"` // waiting for their time
	Running   int64  `json:"running"`   // lapsed ones included
	Lapsed    int64  `json:"lapsed"`
	Done      int64  `json:"done"`
	Dead      int64  `json:"dead"`
	Cancelled int64  `json:"cancelled"`
	// Oldest is since when the oldest ready item has been ready; Heartbeat and Progress are the oldest of all running items. They are zero if there is none.
	Oldest    time.Time `json:"oldest,omitzero"`
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	Progress  time.Time `json:"progress,omitzero"`

	Pending  int64 `json:"effects_pending"`
	Sent     int64 `json:"effects_sent"`
	Failed   int64 `json:"effects_failed"`
	Unknown  int64 `json:"effects_unknown"`
	Refusals int64 `json:"refusals"` // that are still remembered
}

// Count adds an item to the counts of its queue.
func (s *Stats) Count(it Item, now time.Time) {
	earliest := func(t *time.Time, at time.Time) {
		if t.IsZero() || at.Before(*t) {
			*t = at
		}
	}
	switch it.State {
	case Waiting:
		if it.Ready.After(now) {
			s.Scheduled++
			return
		}
		s.Ready++
		earliest(&s.Oldest, it.Ready)
	case Running:
		s.Running++
		if it.Lapsed(now) {
			s.Lapsed++
		}
		earliest(&s.Heartbeat, it.Heartbeat())
		earliest(&s.Progress, it.Progressed())
	case Done:
		s.Done++
	case Dead:
		s.Dead++
	case Cancelled:
		s.Cancelled++
	}
}

// CountEffect adds an effect to the counts of its queue.
func (s *Stats) CountEffect(e Effect) {
	switch e.State {
	case Pending:
		s.Pending++
	case Sent:
		s.Sent++
	case Failed:
		s.Failed++
	case Unknown:
		s.Unknown++
	}
}
