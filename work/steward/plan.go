package steward

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/work"
)

// ActionKind says what the reconciler does, or would do. Log records have the
// same names. The names are stable.
type ActionKind string

// The kinds of actions.
const (
	// Requeued says that a lapsed item waits again.
	Requeued ActionKind = "requeued"
	// Buried says that a lapsed item is dead, because its attempts are used up.
	Buried ActionKind = "buried"
	// Stalled says that an item is alive and has reported no progress for long.
	// The reconciler changes nothing; somebody should look.
	Stalled ActionKind = "stalled"
	// Recovered says that an effect is pending again, because its dispatcher
	// died.
	Recovered ActionKind = "recovered"
	// Doubtful says that an effect may or may not have been delivered, and must
	// not be sent again automatically. An operator should settle it.
	Doubtful ActionKind = "doubtful"
	// Unserved says that Count effects for the destination To are due, and
	// the first has been for a while. The reconciler changes nothing. Perhaps
	// no dispatcher delivers to it.
	Unserved ActionKind = "unserved"
	// Pruned says that Count items and refusals were forgotten.
	Pruned ActionKind = "pruned"
)

// Action is one thing that the reconciler does or, in a dry run, would do.
type Action struct {
	Kind   ActionKind `json:"action"`
	Queue  string     `json:"queue,omitempty"`
	Item   work.ID    `json:"item,omitempty"`
	Effect string     `json:"effect,omitempty"`
	To     string     `json:"to,omitempty"`    // a destination of effects
	Owner  string     `json:"owner,omitempty"` // of the item
	Why    string     `json:"why"`
	// Age is the time since the heartbeat of a lapsed item, or since the
	// progress of a stalled one, or for which an effect has been due.
	Age   time.Duration `json:"-"`
	Count int           `json:"count,omitempty"`

	item   work.Item
	effect work.Effect
}

// plan decides what to do about running items and orphaned effects at now. It
// is a pure function of its arguments.
func plan(items []work.Item, orphans []work.Effect, now time.Time, o ReconcileOptions) []Action {
	var actions []Action
	for _, it := range items {
		a := Action{Queue: it.Queue, Item: it.ID, Owner: it.Record.Owner, item: it}
		beat, progress := now.Sub(it.Heartbeat()), now.Sub(it.Progressed())
		switch {
		case it.Lapsed(now) && it.Attempts >= it.Limit:
			a.Kind, a.Age, a.Why = Buried, beat, fmt.Sprintf("no heartbeat for %s, and attempt %d of %d was its last",
				round(beat), it.Attempts, it.Limit)
		case it.Lapsed(now):
			a.Kind, a.Age, a.Why = Requeued, beat, fmt.Sprintf("no heartbeat for %s in attempt %d of %d",
				round(beat), it.Attempts, it.Limit)
		case it.State == work.Running && progress >= o.StallAfter:
			a.Kind, a.Age, a.Why = Stalled, progress, fmt.Sprintf(
				"no progress for %s, though its last heartbeat was %s ago", round(progress), round(beat))
		default:
			continue
		}
		actions = append(actions, a)
	}
	for _, e := range orphans {
		if !e.Orphaned(now) {
			continue
		}
		a := Action{
			Kind: Recovered, Queue: e.Queue, Item: e.Item, Effect: e.EffectID.String(), Owner: e.Owner,
			effect: e, Age: now.Sub(e.Ready),
		}
		a.Why = fmt.Sprintf("its dispatcher (token %d) has not settled delivery %d", e.Sender, e.Attempts)
		switch {
		case e.AtMostOnce:
			a.Kind, a.Why = Doubtful, a.Why+", and it must not be sent twice; settle it by hand"
		case e.Attempts >= o.Deliveries:
			a.Kind, a.Why = Doubtful, a.Why+", which was the last; settle it by hand"
		}
		actions = append(actions, a)
	}
	return actions
}

// unserved decides which destinations nobody delivers to, or not fast
// enough. It is a pure function of its arguments.
func unserved(open work.Backlog, o ReconcileOptions) []Action {
	var actions []Action
	for _, d := range open.Destinations {
		if d.OldestDue.IsZero() || open.Now.Sub(d.OldestDue) < o.DueFor {
			continue
		}
		age := open.Now.Sub(d.OldestDue)
		actions = append(actions, Action{
			Kind: Unserved, To: d.To, Age: age, Count: int(d.Due), Why: fmt.Sprintf(
				"%d effects are due, the first for %s; see that a dispatcher delivers to %q", d.Due, round(age), d.To),
		})
	}
	return actions
}

// changes reports whether the action writes to the ledger.
func (k ActionKind) changes() bool { return k == Requeued || k == Buried || k == Recovered }

// round drops the digits that nobody reads.
func round(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}
