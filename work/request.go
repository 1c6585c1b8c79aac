package work

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Verb names an operation on one item.
type Verb string

// Add makes an item.
const Add Verb = "add"

// The operations of an owner. Each is a conditional write on the item's token:
// it takes effect only while the grant that asks is the item's newest. It does
// so also after the deadline, as long as nobody has requeued the item. Time
// decides who may try; the token decides whose writes count.
const (
	// Heartbeat sets the deadline to the ledger's time plus TTL.
	Heartbeat Verb = "heartbeat"
	// Report writes a progress marker. It does not move the deadline.
	Report Verb = "report"
	// Checkpoint saves what the next owner begins with. It does not move the
	// deadline.
	Checkpoint Verb = "checkpoint"
	// Complete makes the item done, and writes its result and effects.
	Complete Verb = "complete"
	// Fail makes the item wait for another attempt, or makes it dead.
	Fail Verb = "fail"
	// Release makes the item wait again, and does not count the attempt.
	Release Verb = "release"
)

// The operations by hand. Each needs an actor and a note. Each burns a new
// token, which shuts out the item's owner.
//
// Requeue belongs to the reconciler. It needs no note, but the token that the
// reconciler has read. So it takes the item only from the owner whose deadline
// has passed.
const (
	// Cancel ends a live item.
	Cancel Verb = "cancel"
	// Reassign makes a live item wait. For the time of TTL only Owner may claim
	// it.
	Reassign Verb = "reassign"
	// Takeover makes the operator the owner of a live or dead item. The
	// operator then completes or fails it like any owner.
	Takeover Verb = "takeover"
	// Replay makes a dead or cancelled item wait again. With Again it also
	// replays a done item, and opens a new generation.
	Replay Verb = "replay"
	// RunNow makes a waiting item ready at once, if its time has not come. Its
	// attempts and its place among the items of its priority stay as they are.
	RunNow Verb = "run_now"
	// Requeue makes an item wait again whose owner's deadline has passed, or
	// makes it dead if its attempts are used up.
	Requeue Verb = "requeue"
)

// Verbs lists all operations.
var Verbs = []Verb{
	Add, Heartbeat, Report, Checkpoint, Complete, Fail, Release, Cancel, Reassign, Takeover, Replay, RunNow,
	Requeue,
}

// ByOwner reports whether only the item's owner may use the verb.
func (v Verb) ByOwner() bool {
	return slices.Contains([]Verb{Heartbeat, Report, Checkpoint, Complete, Fail, Release}, v)
}

// ByHand reports whether the verb is an operator's act.
func (v Verb) ByHand() bool {
	return slices.Contains([]Verb{Cancel, Reassign, Takeover, Replay, RunNow}, v)
}

// Request asks for one operation on one item. Every request is safe to send
// again: several copies have the effect of one.
type Request struct {
	Verb Verb
	// ID names the item. For Add the caller makes it, with NewID.
	ID ID

	// Token and Secret come from the owner's claim or deed. An operator's act
	// has no Token, and a new Secret from tenure.NewSecret. Requeue has both:
	// the Token that it has read, and a new Secret. Add has neither.
	Token  fence.Token
	Secret tenure.Secret

	// The fields of Add. Limit is the attempt limit; 0 means DefaultTries. Set
	// NotBefore or Delay, not both.
	Queue string
	// Unique is the idempotency key. Adding the same content again under it is
	// answered with the stored item.
	Unique    string
	Partition string // see Item
	Payload   []byte
	Priority  int // from -MaxPriority to MaxPriority
	Limit     int
	NotBefore time.Time
	// Guards are templates of the item's Guards. {id}, {queue} and {key} stand
	// for the item's ID, its queue, and both as in [Item.Key].
	Guards []string

	// Delay is the least time that the item waits after Add, Release, Replay or
	// Fail. After Fail it replaces the Backoff. After Release, 0 leaves the
	// item at its old position in the queue.
	Delay time.Duration

	// TTL depends on the verb. For Heartbeat it is a new TTL; 0 keeps the
	// claim's. For Takeover it is the TTL of the operator's lease; 0 means
	// DefaultTTL. For Reassign it is how long the item is kept for Owner; 0
	// means DefaultReservation.
	TTL time.Duration
	// Progress is the marker that Report writes: one line for people.
	Progress string
	// State is what Checkpoint saves.
	State []byte
	// Result and Effects are what Complete writes, in one step.
	Result  []byte
	Effects []Emission
	// Error says why the attempt failed, or why Release gives the item back.
	// Final makes the item dead even if attempts are left.
	Error string
	Final bool

	// Owner is for whom Reassign keeps the item. For Takeover and Requeue,
	// Owner and Instance say who acts. Takeover uses Actor if Owner is empty.
	Owner, Instance string
	// Actor and Note say who acts by hand, and why.
	Actor, Note string
	// Again makes Replay open a new generation: the item's effects happen
	// again, under new identities.
	Again bool
}

// Stamp returns the stamp that an owner's request presents, given the item's
// queue.
func (q Request) Stamp(queue string) fence.Stamp {
	return fence.Stamp{Key: keyOf(queue, q.ID), Token: q.Token, Grant: q.Secret.Grant()}
}

// weight is the approximate size of the request in bytes.
func (q Request) weight() int {
	n := len(q.Payload) + len(q.State) + len(q.Result) + len(q.Error)
	for _, e := range q.Effects {
		n += len(e.Body)
	}
	return n
}

// Check returns nil if the request is valid, or an error that matches
// fence.ErrInvalid. [Apply] refuses what Check refuses. A ledger calls Check
// first, so that invalid input costs no transaction.
func (q Request) Check() error {
	if err := q.ID.Check(); err != nil {
		return err
	}
	if !slices.Contains(Verbs, q.Verb) {
		return fmt.Errorf("%w verb %.40q", fence.ErrInvalid, q.Verb)
	}
	if q.Verb == Add {
		return q.checkAdd()
	}
	if !q.Secret.Valid() {
		return fmt.Errorf("%w secret: it must be 32 lower-case hex digits", fence.ErrInvalid)
	}
	if (q.Verb.ByOwner() || q.Verb == Requeue) && !q.Token.Valid() {
		return fmt.Errorf("%w token %d: it must be between 1 and %d; it comes with the claim",
			fence.ErrInvalid, q.Token, fence.MaxToken)
	}
	if q.Verb.ByHand() && (strings.TrimSpace(q.Actor) == "" || strings.TrimSpace(q.Note) == "") {
		return fmt.Errorf("%w %s: an operator's act needs an actor and a note that says why", fence.ErrInvalid, q.Verb)
	}
	if (q.Verb == Reassign || q.Verb == Requeue) && strings.TrimSpace(q.Owner) == "" {
		return fmt.Errorf("%w %s: it needs an owner", fence.ErrInvalid, q.Verb)
	}
	if q.TTL != 0 {
		if err := checkTTL(q.TTL); err != nil {
			return err
		}
	}
	if err := checkDelay("delay", q.Delay); err != nil {
		return err
	}
	for _, f := range []struct {
		what, text string
		most       int
	}{
		{"owner", q.Owner, tenure.MaxName},
		{"instance", q.Instance, tenure.MaxName},
		{"actor", q.Actor, tenure.MaxName},
		{"note", q.Note, tenure.MaxText},
		{"progress marker", q.Progress, tenure.MaxText},
	} {
		if err := checkName(f.what, f.text, f.most); err != nil {
			return err
		}
	}
	if err := checkSize("checkpoint", len(q.State), MaxPayload); err != nil {
		return err
	}
	if err := checkSize("result", len(q.Result), MaxPayload); err != nil {
		return err
	}
	if err := checkError(q.Error); err != nil {
		return err
	}
	return checkEmissions(q.Effects)
}

func (q Request) checkAdd() error {
	if err := checkQueue(q.Queue); err != nil {
		return err
	}
	if err := checkName("idempotency key", q.Unique, MaxUnique); err != nil {
		return err
	}
	if err := checkPartition(q.Partition); err != nil {
		return err
	}
	if err := checkSize("payload", len(q.Payload), MaxPayload); err != nil {
		return err
	}
	if q.Priority < -MaxPriority || q.Priority > MaxPriority {
		return fmt.Errorf("%w priority %d: it must be between %d and %d",
			fence.ErrInvalid, q.Priority, -MaxPriority, MaxPriority)
	}
	if q.Limit < 0 || q.Limit > MaxTries {
		return fmt.Errorf("%w attempt limit %d: it must be between 1 and %d, or 0 for %d",
			fence.ErrInvalid, q.Limit, MaxTries, DefaultTries)
	}
	if err := checkGuards(q.Named()); err != nil {
		return err
	}
	if q.Delay != 0 && !q.NotBefore.IsZero() {
		return fmt.Errorf("%w add: give a delay or a not-before time, not both", fence.ErrInvalid)
	}
	return checkDelay("delay", q.Delay)
}
