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

// The operations of an owner. Each is a conditional write on the item's token: it takes effect only while the grant that asks is the item's newest. That is so also after its
// deadline, as long as nobody has requeued the item: time decides who may try, the token decides whose writes count.
const (
	Heartbeat  Verb = "heartbeat"  // deadline = ledger's time + TTL
	Report     Verb = "report"     // a marker of progress; does not move the deadline
	Checkpoint Verb = "checkpoint" // what the next owner shall begin with; does not move the deadline
	Complete   Verb = "complete"   // done, with result and effects
	Fail       Verb = "fail"       // waiting again after a backoff, or dead
	Release    Verb = "release"    // waiting again, the attempt not counted
)

// The operations by hand. Each needs an actor and a note and burns a new token, so that whoever owned the item is shut out. Requeue is the reconciler's: it needs no note, but the
// token that it has read, so that it takes the item from nobody else than the owner whose time is over.
const (
	Cancel   Verb = "cancel"   // of a live item
	Reassign Verb = "reassign" // of a live item: waiting, for the time of TTL only for Owner
	Takeover Verb = "takeover" // of a live or dead item: then the operator runs it, and completes or fails it like any owner
	Replay   Verb = "replay"   // of a dead or cancelled item: waiting again. With Again also of a done one, in a new generation
	Requeue  Verb = "requeue"  // of a lapsed item: waiting again, or dead when its attempts are used up
)

// Verbs lists all operations.
var Verbs = []Verb{Add, Heartbeat, Report, Checkpoint, Complete, Fail, Release, Cancel, Reassign, Takeover, Replay, Requeue}

// ByOwner reports whether the verb is an owner's.
func (v Verb) ByOwner() bool {
	return slices.Contains([]Verb{Heartbeat, Report, Checkpoint, Complete, Fail, Release}, v)
}

// ByHand reports whether the verb is an operator's.
func (v Verb) ByHand() bool { return slices.Contains([]Verb{Cancel, Reassign, Takeover, Replay}, v) }

// Request asks for one operation on one item. Every request is safe to send again: repeated, it has the effect of one.
type Request struct {
	Verb Verb
	// ID is the item's. For Add the caller makes it, with NewID.
	ID ID

	// Token and Secret are the owner's, from its claim or deed. An act by hand makes a Secret of its own, with tenure.NewSecret, and has no Token. Requeue has both: the Token that it
	// has read, and a Secret of its own. Add has neither.
	Token  fence.Token
	Secret tenure.Secret

	// For Add. Limit is the attempt limit, 0 means DefaultTries. Not both of NotBefore and Delay.
	Queue     string
	Unique    string // idempotency key: adding the same content again under it is answered with the item that there is
	Payload   []byte
	Priority  int // from -MaxPriority to MaxPriority
	Limit     int
	NotBefore time.Time

	// Delay is how long the item waits at least after Add, Release or Replay, and after Fail instead of its Backoff. 0 after Release leaves it at its old place in the queue.
	Delay time.Duration

	// TTL: for Heartbeat a new one, or 0 to keep the claim's; for Takeover the operator's lease, 0 means DefaultTTL; for Reassign how long the item is kept for Owner, 0 means DefaultReservation.
	TTL time.Duration
	// Progress is the marker of a Report: one line for people.
	Progress string
	// State is what Checkpoint saves.
	State []byte
	// Result and Effects are what Complete writes, in one step.
	Result  []byte
	Effects []Emission
	// Error says why the attempt failed. Final makes the item dead whatever its attempts.
	Error string
	Final bool

	// Owner and Instance: for Reassign, Owner is whom the item is for; for Takeover and Requeue they say who acts. Takeover may leave Owner empty: it is the Actor.
	Owner, Instance string
	// Actor and Note say who acts by hand, and why.
	Actor, Note string
	// Again opens a new generation at Replay: the item's effects happen again, under new identities.
	Again bool
}

// Stamp is what an owner's request presents, given the item's queue.
func (q Request) Stamp(queue string) fence.Stamp {
	return fence.Stamp{Key: KeyOf(queue, q.ID), Token: q.Token, Grant: q.Secret.Grant()}
}

// weight is about how many bytes the request carries.
func (q Request) weight() int {
	n := len(q.Payload) + len(q.State) + len(q.Result) + len(q.Error)
	for _, e := range q.Effects {
		n += len(e.Body)
	}
	return n
}

// Check reports what is wrong with the request, or nil. [Apply] refuses what Check refuses; a ledger calls it before it begins, so that bad input costs no transaction.
func (q Request) Check() error {
	if err := q.ID.Check(); err != nil {
		return err
	}
	if !slices.Contains(Verbs, q.Verb) {
		return fmt.Errorf("%w verb %q", fence.ErrInvalid, q.Verb)
	}
	if q.Verb == Add {
		return q.checkAdd()
	}
	if !q.Secret.Valid() {
		return fmt.Errorf("%w secret: it must be 32 lower-case hex digits", fence.ErrInvalid)
	}
	if (q.Verb.ByOwner() || q.Verb == Requeue) && !q.Token.Valid() {
		return fmt.Errorf("%w token %d: it must be between 1 and %d; it comes with the claim", fence.ErrInvalid, q.Token, fence.MaxToken)
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
	if err := CheckQueue(q.Queue); err != nil {
		return err
	}
	if err := checkName("idempotency key", q.Unique, MaxUnique); err != nil {
		return err
	}
	if err := checkSize("payload", len(q.Payload), MaxPayload); err != nil {
		return err
	}
	if q.Priority < -MaxPriority || q.Priority > MaxPriority {
		return fmt.Errorf("%w priority %d: it must be between %d and %d", fence.ErrInvalid, q.Priority, -MaxPriority, MaxPriority)
	}
	if q.Limit < 0 || q.Limit > MaxTries {
		return fmt.Errorf("%w attempt limit %d: it must be between 1 and %d, or 0 for %d", fence.ErrInvalid, q.Limit, MaxTries, DefaultTries)
	}
	if q.Delay != 0 && !q.NotBefore.IsZero() {
		return fmt.Errorf("%w add: give a delay or a not-before time, not both", fence.ErrInvalid)
	}
	return checkDelay("delay", q.Delay)
}
