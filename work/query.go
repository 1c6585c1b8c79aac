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
	Queue  string  // empty selects all queues
	States []State // empty selects all states
	Owner  string  // empty selects all owners; else the record's owner must be this one
	// Newest yields the highest ID first. After skips the items up to and
	// including that ID, in the order asked for: set it to the last ID of the
	// page before.
	Newest bool
	After  ID
	// Limit is the largest number of items to yield; 0 means all.
	Limit int
}

// Check returns nil if the query is valid, or an error that matches
// fence.ErrInvalid. A ledger yields that error.
func (q Query) Check() error {
	if err := checkSelected(q.Queue); err != nil {
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

// Selects reports whether the item matches. It ignores After and Limit.
func (q Query) Selects(it Item) bool {
	return (q.Queue == "" || q.Queue == it.Queue) &&
		(len(q.States) == 0 || slices.Contains(q.States, it.State)) &&
		(q.Owner == "" || q.Owner == it.Record.Owner)
}

// EffectQuery selects effects. The zero EffectQuery selects all.
type EffectQuery struct {
	Item   ID            // empty selects the effects of all items
	Queue  string        // empty selects all queues
	States []EffectState // empty selects all states
	// Orphaned selects only unknown effects whose dispatcher has not settled
	// them in time, by the ledger's clock.
	Orphaned bool
	// After skips the effects up to and including that identity: set it to the
	// last one of the page before. Limit is the largest number to yield; 0
	// means all.
	After EffectID
	Limit int
}

// Check returns nil if the query is valid, or an error that matches
// fence.ErrInvalid.
func (q EffectQuery) Check() error {
	if err := checkSelected(q.Queue); err != nil {
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

// Selects reports whether the effect matches at now. It ignores Limit.
func (q EffectQuery) Selects(e Effect, now time.Time) bool {
	return (q.After == EffectID{} || e.EffectID.Compare(q.After) > 0) &&
		(q.Item == "" || q.Item == e.Item) && (q.Queue == "" || q.Queue == e.Queue) &&
		(len(q.States) == 0 || slices.Contains(q.States, e.State)) && (!q.Orphaned || e.Orphaned(now))
}

// RefusalQuery selects refusals. The zero RefusalQuery selects all.
type RefusalQuery struct {
	Item  ID        // empty selects the refusals of all items
	Queue string    // empty selects all queues
	Since time.Time // on the ledger's clock; zero selects from the beginning
	Limit int       // the largest number to yield; 0 means all
}

// Check returns nil if the query is valid, or an error that matches
// fence.ErrInvalid.
func (q RefusalQuery) Check() error {
	if err := checkSelected(q.Queue); err != nil {
		return err
	}
	if q.Item != "" {
		if err := q.Item.Check(); err != nil {
			return err
		}
	}
	return checkLimit(q.Limit)
}

// Selects reports whether the refusal matches. It ignores Limit.
func (q RefusalQuery) Selects(r Refusal) bool {
	return (q.Item == "" || q.Item == r.Item) && (q.Queue == "" || q.Queue == r.Queue) && !r.At.Before(q.Since)
}

// checkSelected is checkQueue for the queue of a query, where the empty name
// means all queues.
func checkSelected(queue string) error {
	if queue == "" {
		return nil
	}
	return checkQueue(queue)
}

func checkLimit(n int) error {
	if n < 0 {
		return fmt.Errorf("%w limit %d: it must not be negative", fence.ErrInvalid, n)
	}
	return nil
}

// Stats is the state of one queue at one moment on the ledger's clock. The
// counts of finished items may be slightly older.
type Stats struct {
	Queue     string `json:"queue"`
	Ready     int64  `json:"ready"`     // waiting, and may be claimed now
	Scheduled int64  `json:"scheduled"` // waiting for a later time
	Running   int64  `json:"running"`   // including lapsed ones
	Lapsed    int64  `json:"lapsed"`
	Done      int64  `json:"done"`
	Dead      int64  `json:"dead"`
	Cancelled int64  `json:"cancelled"`
	// Oldest is the Ready time of the item that has been ready longest.
	// Heartbeat and Progress are the oldest heartbeat and progress of all
	// running items. Each is zero if there is no such item.
	Oldest    time.Time `json:"oldest,omitzero"`
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	Progress  time.Time `json:"progress,omitzero"`

	Pending  int64 `json:"effects_pending"`
	Sent     int64 `json:"effects_sent"`
	Failed   int64 `json:"effects_failed"`
	Unknown  int64 `json:"effects_unknown"`
	Refusals int64 `json:"refusals"` // not yet pruned
}

// Count adds an item to the counts of its queue.
func (s *Stats) Count(it Item, now time.Time) {
	switch it.State {
	case Waiting:
		if it.Ready.After(now) {
			s.Scheduled++
			return
		}
		s.Ready++
		Earliest(&s.Oldest, it.Ready)
	case Running:
		s.Running++
		if it.Lapsed(now) {
			s.Lapsed++
		}
		Earliest(&s.Heartbeat, it.Heartbeat())
		Earliest(&s.Progress, it.Progressed())
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
