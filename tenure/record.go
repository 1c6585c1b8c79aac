package tenure

import (
	"time"

	"github.com/croft-dev/croft/fence"
)

// State says whether a key may be taken.
type State string

// The states of a key. A held or reserved key becomes free when its deadline
// passes, without any request: see [Record.StateAt].
const (
	Free State = "free"
	Held State = "held"
	// Reserved is free, but until the deadline only for the named owner.
	Reserved State = "reserved"
)

// Cause says how a term began.
type Cause string

// The causes of a term.
const (
	First     Cause = "first"     // the store remembers no term before it
	Released  Cause = "released"  // the holder before it released the key
	Expired   Cause = "expired"   // the term before it reached its deadline
	Handoff   Cause = "handoff"   // an operator reserved the key for this owner
	Operator  Cause = "operator"  // an operator took the key
	Cancelled Cause = "cancelled" // an operator revoked the term before it
	// Recovery: the holder asked for a token at or above the store's newest,
	// which a guard still remembered.
	Recovery Cause = "recovery"
)

// End says how a term ended. It is empty while no request has ended the term:
// then the term is alive, or its deadline has passed.
type End string

// The ends of a term.
const (
	EndReleased   End = "released"   // its holder released it after success
	EndFailed     End = "failed"     // its holder released it after failure
	EndExpired    End = "expired"    // its deadline passed, then another was granted
	EndTakenOver  End = "taken_over" // an operator took over, reserved or revoked the key
	EndSuperseded End = "superseded" // a reservation or revocation that the next transfer ended
)

// HistoryLen is how many transfers a record remembers. As long as it remembers
// a grant, no late copy of that grant's request is granted again.
const HistoryLen = 32

// Record holds everything that a store remembers of one key. All times are on
// the store's clock, in UTC, in whole microseconds. The zero Record belongs to
// a key of which the store remembers nothing.
type Record struct {
	Key string `json:"key"`
	// Token, Grant, Owner, Instance and Cause are those of the newest term.
	Token    fence.Token `json:"token"`
	Grant    fence.Grant `json:"grant"`
	Owner    string      `json:"owner,omitempty"`
	Instance string      `json:"instance,omitempty"`
	State    State       `json:"state"`
	Cause    Cause       `json:"cause"`
	// Ended says how the newest term ended. It is empty if only its deadline
	// has passed.
	Ended End `json:"ended,omitempty"`
	// Actor and Note say which operator acted, and why. They are empty if the
	// newest term began without an operator.
	Actor string `json:"actor,omitempty"`
	Note  string `json:"note,omitempty"`

	// Deadline is when the newest term ends unless it is renewed. Renewed is
	// when it was last renewed, or acquired.
	Acquired time.Time     `json:"acquired"`
	Renewed  time.Time     `json:"renewed"`
	Deadline time.Time     `json:"deadline"`
	TTL      time.Duration `json:"ttl"`

	// Every is the period of work that runs once per period. Succeeded is when
	// the last successful term began. Grid is when the first successful term
	// with this period began: see [Record.Due].
	Every     time.Duration `json:"every,omitempty"`
	Succeeded time.Time     `json:"succeeded,omitzero"`
	Grid      time.Time     `json:"grid,omitzero"`
	// HoldUntil keeps the key from everybody until then, if the term ends in
	// success earlier.
	HoldUntil time.Time `json:"hold_until,omitzero"`

	// Guards are the targets of the resources that the holder writes to.
	// Progress is the holder's last report. ProgressAt is when it last
	// reported, or saved a checkpoint.
	Guards     []string  `json:"guards,omitempty"`
	Progress   string    `json:"progress,omitempty"`
	ProgressAt time.Time `json:"progress_at,omitzero"`
	// Checkpoint holds the bytes that a holder saved last, of this term or an
	// earlier one. The law never reads them. Unlike Progress it outlives its
	// term, however that ends. It goes with the record: see [Record.Droppable].
	// JSON has it in base64.
	Checkpoint string `json:"-"`

	// Terms counts the grants of this key. History holds the last [HistoryLen]
	// transfers, oldest first. The last entry is the record's own term.
	Terms   int64  `json:"terms"`
	History []Term `json:"history,omitempty"`
}

// Term is one transfer of a key: who got the key, how, and how the term ended.
type Term struct {
	Token    fence.Token `json:"token"`
	Grant    fence.Grant `json:"grant"`
	Owner    string      `json:"owner,omitempty"`
	Instance string      `json:"instance,omitempty"`
	State    State       `json:"state"` // the state of the key after the transfer
	Cause    Cause       `json:"cause"`
	Actor    string      `json:"actor,omitempty"`
	Note     string      `json:"note,omitempty"`
	Acquired time.Time   `json:"acquired"`
	// Finished and Ended are set once the term is over.
	Finished time.Time `json:"finished,omitzero"`
	Ended    End       `json:"ended,omitempty"`
}

// IsZero reports whether the store remembers nothing of the key.
func (r Record) IsZero() bool { return r.Key == "" }

// Stamp returns the stamp that writes under the newest grant carry.
func (r Record) Stamp() fence.Stamp {
	return fence.Stamp{Key: r.Key, Token: r.Token, Grant: r.Grant}
}

// Alive reports whether the newest term holds the key at now: it is held, and
// its deadline has not passed.
func (r Record) Alive(now time.Time) bool { return r.State == Held && now.Before(r.Deadline) }

// StateAt returns the state at now. A record whose deadline has passed is free.
func (r Record) StateAt(now time.Time) State {
	if r.IsZero() || r.State == Free || !now.Before(r.Deadline) {
		return Free
	}
	return r.State
}

// Due returns when a claim with the period every may be granted again. It is
// zero if nothing has succeeded, or if every is zero.
//
// Periods are slots on a grid. Grid is the middle of one slot, and each slot is
// as long as the period. At most one term that begins in a slot succeeds, so
// the next may begin when the slot of the last success ends. A start that is
// early or late by less than half a period stays in its slot. Until a term with
// this period has succeeded, the last success is the middle of a slot.
func (r Record) Due(every time.Duration) time.Time {
	every = whole(every)
	if every <= 0 || r.Succeeded.IsZero() {
		return time.Time{}
	}
	// Microseconds, because a Duration is too short for the times of the law.
	period := every.Microseconds()
	into := period / 2
	if every == r.Every && !r.Grid.IsZero() {
		into = (r.Succeeded.UnixMicro() - r.Grid.UnixMicro() + period/2) % period
	}
	if into < 0 {
		into += period // the store's clock has stepped back since Grid
	}
	return r.Succeeded.Add(every - time.Duration(into)*time.Microsecond)
}

// Quiet returns the moment from which the record no longer restricts a claim.
// By then lease, reservation, hold and period are over, and the clock has
// passed the token. (A token can lie ahead of the clock if a request asked for
// one above another, or if the clock stepped back.) A store may drop the record
// once its retention has passed since then, not before.
func (r Record) Quiet() time.Time {
	quiet := r.Deadline
	for _, t := range []time.Time{r.Acquired, r.Renewed, r.HoldUntil, time.UnixMicro(int64(r.Token)).UTC()} {
		if t.After(quiet) {
			quiet = t
		}
	}
	if !r.Succeeded.IsZero() && r.Succeeded.Add(r.Every).After(quiet) {
		quiet = r.Succeeded.Add(r.Every)
	}
	return quiet
}

// Droppable reports whether the store may forget the record at now: the
// retention has passed since [Record.Quiet].
func (r Record) Droppable(now time.Time, retention time.Duration) bool {
	return !now.Before(r.Quiet().Add(retention))
}

// term returns the newest transfer of a grant. It searches backwards, so the
// record's own grant is found at once.
func (r Record) term(g fence.Grant) (Term, bool) {
	for i := len(r.History) - 1; i >= 0; i-- {
		if r.History[i].Grant == g {
			return r.History[i], true
		}
	}
	return Term{}, false
}

// clone returns a copy whose slices can change without touching the caller's.
func (r Record) clone() Record {
	r.History = append(make([]Term, 0, len(r.History)+1), r.History...)
	r.Guards = append([]string(nil), r.Guards...)
	return r
}
