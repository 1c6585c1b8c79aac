package work

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// State is where an item stands.
type State string

// The states of an item. Waiting and running are live, the others finished.
const (
	Waiting   State = "waiting"   // to be claimed from Ready on
	Running   State = "running"   // somebody holds it, or held it until its deadline passed and nobody has requeued it yet
	Done      State = "done"      // completed: its result is the one that counts
	Dead      State = "dead"      // its attempts are used up, or it failed for good; Replay brings it back
	Cancelled State = "cancelled" // by hand; Replay brings it back
)

// States lists all states, in the order in which people want to see them.
var States = []State{Waiting, Running, Done, Dead, Cancelled}

// Finished reports whether nothing happens to an item in this state by itself.
func (s State) Finished() bool { return s == Done || s == Dead || s == Cancelled }

// Item is what a ledger remembers of one piece of work. All times are on the ledger's clock, in UTC, whole microseconds. The zero Item is one that nothing is
// remembered of. Empty and nil bytes are the same.
type Item struct {
	ID    ID     `json:"id"`
	Queue string `json:"queue"`
	// Unique is the idempotency key, if it has one: no other item of the queue that is still remembered has the same.
	Unique string `json:"unique,omitempty"`
	State  State  `json:"state"`

	// Priority: higher is claimed first. Within a priority the oldest Ready goes first, then the lowest ID.
	Priority int       `json:"priority"`
	Ready    time.Time `json:"ready"` // from when a waiting item may be claimed
	Created  time.Time `json:"created"`
	Finished time.Time `json:"finished,omitzero"` // when it was done, dead or cancelled

	// Attempts counts the terms that were held, without those that were released back; after Limit of them a failure is final. Replay begins to count again.
	Attempts int `json:"attempts"`
	Limit    int `json:"limit"`
	// Generation counts how often an operator has said that all of it, effects included, shall happen again. It is part of the identity of effects.
	Generation int `json:"generation"`

	Payload []byte `json:"payload,omitempty"`
	// Checkpoint is what the work has saved for the next owner. It goes when the item is done.
	Checkpoint   []byte    `json:"checkpoint,omitempty"`
	CheckpointAt time.Time `json:"checkpoint_at,omitzero"`
	Result       []byte    `json:"result,omitempty"`
	Error        string    `json:"error,omitempty"` // of the last attempt that failed

	// Record says who owns the item, by the law of tenure. Its Key is [Item.Key]; it is zero until the item is first claimed or reassigned.
	Record tenure.Record `json:"record"`
}

// IsZero reports whether nothing is remembered of the item.
func (it Item) IsZero() bool { return it.ID == "" }

// Key is what the item's lease is on, and what stamps of its owner carry: the queue and the ID.
func (it Item) Key() string { return KeyOf(it.Queue, it.ID) }

// KeyOf is the key of an item of a queue.
func KeyOf(queue string, id ID) string { return queue + "/" + string(id) }

// Mark is the newest grant of the item, as guards keep it.
func (it Item) Mark() fence.Mark { return fence.Mark(it.Record.Stamp()) }

// Deed is what the owner needs to act on the item from another process: requests take their ID, Token and Secret from it.
func (it Item) Deed(secret tenure.Secret) tenure.Deed {
	return tenure.Deed{Key: it.Key(), Token: it.Record.Token, Secret: secret, TTL: it.Record.TTL}
}

// ItemOf is the queue and the ID of the item that a deed is for.
func ItemOf(deed tenure.Deed) (queue string, id ID, err error) {
	const hex = 32
	if n := len(deed.Key) - hex; n > 1 && deed.Key[n-1] == '/' {
		queue, id = deed.Key[:n-1], ID(deed.Key[n:])
	}
	return queue, id, id.Check()
}

// Lapsed reports whether the item is held by somebody whose time is over.
func (it Item) Lapsed(now time.Time) bool {
	return it.State == Running && !now.Before(it.Record.Deadline)
}

// Heartbeat is when its owner was last heard of.
func (it Item) Heartbeat() time.Time { return it.Record.Renewed }

// Progressed is when the work is last known to have got somewhere: a report, a checkpoint, or else the claim. It is apart from the heartbeat, which only says
// that a process is alive.
func (it Item) Progressed() time.Time {
	at := it.Record.Acquired
	for _, t := range []time.Time{it.Record.ProgressAt, it.CheckpointAt} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

// Before is the order in which items are claimed: highest priority, then oldest Ready, then lowest ID.
func (it Item) Before(other Item) bool {
	switch {
	case it.Priority != other.Priority:
		return it.Priority > other.Priority
	case !it.Ready.Equal(other.Ready):
		return it.Ready.Before(other.Ready)
	}
	return it.ID < other.ID
}

// Past is the part of the record's history that cannot be derived from the record itself: all transfers but the newest. It is empty for an item that was claimed
// once and completed, so a ledger that keeps it apart keeps nothing more for most items. [Rejoin] puts it back.
func Past(rec tenure.Record) []tenure.Term {
	if len(rec.History) < 2 {
		return nil
	}
	return rec.History[:len(rec.History)-1]
}

// Rejoin is a record with the history that Past took from it: the newest transfer is derived from the record.
func Rejoin(rec tenure.Record, past []tenure.Term) tenure.Record {
	if rec.IsZero() {
		return rec
	}
	newest := tenure.Term{
		Token: rec.Token, Grant: rec.Grant, Owner: rec.Owner, Instance: rec.Instance, State: rec.State,
		Cause: rec.Cause, Actor: rec.Actor, Note: rec.Note, Acquired: rec.Acquired, Ended: rec.Ended,
	}
	if rec.Ended != "" { // only what was held can be given back
		newest.State, newest.Finished = tenure.Held, rec.Deadline
	}
	rec.History = append(append(make([]tenure.Term, 0, len(past)+1), past...), newest)
	return rec
}
