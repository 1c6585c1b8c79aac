package work

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// State is the state of an item.
type State string

// The states of an item. Waiting and running are live, the others finished.
const (
	// Waiting items can be claimed from their Ready time on.
	Waiting State = "waiting"
	// Running items have an owner. Its deadline may have passed: the item runs
	// until somebody requeues it.
	Running State = "running"
	// Done items are completed. Their result is final.
	Done State = "done"
	// Dead items have used up their attempts, or failed for good. Replay brings
	// them back.
	Dead State = "dead"
	// Cancelled items were cancelled by an operator. Replay brings them back.
	Cancelled State = "cancelled"
)

// States lists all states, in the order in which to show them.
var States = []State{Waiting, Running, Done, Dead, Cancelled}

// Finished reports whether an item in this state stays as it is until an
// operator acts.
func (s State) Finished() bool { return s == Done || s == Dead || s == Cancelled }

// Item is one piece of work, as a ledger remembers it. All times are on the
// ledger's clock, in UTC, in whole microseconds. The zero Item means that the
// ledger remembers none. Empty and nil bytes are the same.
type Item struct {
	ID    ID     `json:"id"`
	Queue string `json:"queue"`
	// Unique is the idempotency key, if the item has one. No two remembered
	// items of a queue have the same.
	Unique string `json:"unique,omitempty"`
	// Partition is the part of the queue that the item belongs to, such as a
	// tenant. It is fixed when the item is added, and empty if it belongs to
	// none. Partitions take turns: see [Turns].
	Partition string `json:"partition,omitempty"`
	State     State  `json:"state"`

	// Priority is the first rule of the order of claims: higher goes first.
	// Within a priority the item with the oldest Ready goes first, then the
	// lowest ID.
	Priority int `json:"priority"`
	// Ready is the time from which a waiting item may be claimed.
	Ready   time.Time `json:"ready"`
	Created time.Time `json:"created"`
	// Finished is when the item was done, dead or cancelled.
	Finished time.Time `json:"finished,omitzero"`

	// Attempts counts the claims and takeovers, without those that were
	// released. A failure of attempt number Limit is final. Replay sets
	// Attempts to 0.
	Attempts int `json:"attempts"`
	Limit    int `json:"limit"`
	// Generation counts how often an operator has replayed the item with Again,
	// so that all of it happens again, effects included. It is a part of the
	// identity of effects.
	Generation int `json:"generation"`

	// Guards are the targets of the resources that the item's owners write to.
	// They are fixed when the item is added, and at most tenure.MaxGuards.
	Guards []string `json:"guards,omitempty"`

	Payload []byte `json:"payload,omitempty"`
	// Checkpoint is the state that an owner has saved for the next one. It is
	// deleted when the item is done.
	Checkpoint   []byte    `json:"checkpoint,omitempty"`
	CheckpointAt time.Time `json:"checkpoint_at,omitzero"`
	Result       []byte    `json:"result,omitempty"`
	// Error says why the last attempt failed, or why its owner gave the item
	// back.
	Error string `json:"error,omitempty"`

	// Record says who owns the item, by the law of package tenure. Its Key is
	// [Item.Key]. It is zero until the item is first claimed, or an operator
	// first acts on it.
	Record tenure.Record `json:"record"`

	// Signature is that of the newest grant's stamp, in the answer to a claim
	// or an act by hand at a server that signs. Ledgers do not keep it.
	Signature fence.Signature `json:"-"`
}

// IsZero reports whether the ledger remembers no such item.
func (it Item) IsZero() bool { return it.ID == "" }

// Key is the key of the item's lease, which its owner's stamps carry: queue and
// ID.
func (it Item) Key() string { return keyOf(it.Queue, it.ID) }

// keyOf returns the key of an item, given its queue and ID.
func keyOf(queue string, id ID) string { return queue + "/" + string(id) }

// Stamp returns the stamp that the writes of the item's owner carry.
func (it Item) Stamp() fence.Stamp {
	s := it.Record.Stamp()
	s.Signature = it.Signature
	return s
}

// Mark is the newest grant of the item, in the form that guards keep.
func (it Item) Mark() fence.Mark { return it.Record.Stamp().Mark() }

// Deed returns what the owner needs to act on the item from another process.
// Requests take their ID, Token and Secret from it.
func (it Item) Deed(secret tenure.Secret) tenure.Deed {
	return tenure.Deed{
		Key: it.Key(), Token: it.Record.Token, Secret: secret, TTL: it.Record.TTL, Signature: it.Signature,
	}
}

// ItemOf returns the queue and ID of the item that a deed is for. It returns an
// error that matches fence.ErrInvalid if the deed's key is not that of an item.
func ItemOf(deed tenure.Deed) (queue string, id ID, err error) {
	const hex = 32
	if n := len(deed.Key) - hex; n > 1 && deed.Key[n-1] == '/' {
		queue, id = deed.Key[:n-1], ID(deed.Key[n:])
	}
	return queue, id, id.Check()
}

// Lapsed reports whether the item runs and its owner's deadline has passed.
func (it Item) Lapsed(now time.Time) bool {
	return it.State == Running && !now.Before(it.Record.Deadline)
}

// Heartbeat is when the ledger last heard from the item's owner.
func (it Item) Heartbeat() time.Time { return it.Record.Renewed }

// Progressed is when the work last made progress: a report, a checkpoint, or
// else the claim. A heartbeat is no progress: it only says that a process is
// alive.
func (it Item) Progressed() time.Time {
	at := it.Record.Acquired
	for _, t := range []time.Time{it.Record.ProgressAt, it.CheckpointAt} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

// Before reports whether the item is claimed before the other, if both belong
// to the same partition or to none: highest priority first, then oldest Ready,
// then lowest ID. Items that one process adds in one batch are ready at the
// same time, so their IDs from [NewID] keep their order.
func (it Item) Before(other Item) bool {
	switch {
	case it.Priority != other.Priority:
		return it.Priority > other.Priority
	case !it.Ready.Equal(other.Ready):
		return it.Ready.Before(other.Ready)
	}
	return it.ID < other.ID
}
