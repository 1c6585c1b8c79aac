package steward

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/work"
)

// ActionKind names what the reconciler does, or would do. The names are also those of the log records, and stay as they are.
type ActionKind string

// The kinds of actions.
const (
	Requeued  ActionKind = "requeued"  // a lapsed item waits again
	Buried    ActionKind = "buried"    // a lapsed item whose attempts are used up is dead
	Stalled   ActionKind = "stalled"   // an item is alive and has reported no progress for long: nothing is done, somebody should look
	Recovered ActionKind = "recovered" // an effect whose dispatcher died is pending again
	Doubtful  ActionKind = "doubtful"  // an effect may or may not have been delivered, and must not be sent again by itself: an operator should settle it
	Pruned    ActionKind = "pruned"    // items and refusals were forgotten: Count
)

// Action is one thing that the reconciler does, or, in a dry run, would do.
type Action struct {
	Kind   ActionKind    `json:"action"`
	Queue  string        `json:"queue,omitempty"`
	Item   work.ID       `json:"item,omitempty"`
	Effect string        `json:"effect,omitempty"`
	Owner  string        `json:"owner,omitempty"` // who had the item
	Why    string        `json:"why"`
	Age    time.Duration `json:"-"` // since the heartbeat of a lapsed item, since the progress of a stalled one
	Count  int           `json:"count,omitempty"`

	item   work.Item
	effect work.Effect
}

// plan decides what to do about running items and orphaned effects at now: a pure function of what was read.
func plan(items []work.Item, orphans []work.Effect, now time.Time, o ReconcileOptions) []Action {
	var actions []Action
	for _, it := range items {
		a := Action{Queue: it.Queue, Item: it.ID, Owner: it.Record.Owner, item: it}
		beat, progress := now.Sub(it.Heartbeat()), now.Sub(it.Progressed())
		switch {
		case it.Lapsed(now) && it.Attempts >= it.Limit:
			a.Kind, a.Age, a.Why = Buried, beat, fmt.Sprintf("no heartbeat for %s, and attempt %d of %d was its last", round(beat), it.Attempts, it.Limit)
		case it.Lapsed(now):
			a.Kind, a.Age, a.Why = Requeued, beat, fmt.Sprintf("no heartbeat for %s in attempt %d of %d", round(beat), it.Attempts, it.Limit)
		case it.State == work.Running && progress >= o.StallAfter:
			a.Kind, a.Age, a.Why = Stalled, progress, fmt.Sprintf("no progress for %s, though its last heartbeat was %s ago", round(progress), round(beat))
		default:
			continue
		}
		actions = append(actions, a)
	}
	for _, e := range orphans {
		if !e.Orphaned(now) {
			continue
		}
		a := Action{Kind: Recovered, Queue: e.Queue, Item: e.Item, Effect: e.EffectID.String(), Owner: e.Owner, effect: e, Age: now.Sub(e.Ready)}
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

// changes reports whether the action writes to the ledger.
func (k ActionKind) changes() bool { return k == Requeued || k == Buried || k == Recovered }

// round leaves out what nobody reads.
func round(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}
