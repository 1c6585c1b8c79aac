package tenure

import (
	"time"

	"github.com/croft-dev/croft/fence"
)

// State says whether a key may be taken.
type State string

// The states of a key. Held and reserved end by themselves when the deadline passes.
const (
	Free     State = "free"
	Held     State = "held"
	Reserved State = "reserved" // free, but until the deadline only for the named owner
)

// Cause says how a term began.
type Cause string

// The causes of a term.
const (
	First     Cause = "first"     // nothing is remembered before it
	Released  Cause = "released"  // the holder before it gave the key back
	Expired   Cause = "expired"   // the deadline before it passed
	Handoff   Cause = "handoff"   // an operator reserved the key for this owner
	Operator  Cause = "operator"  // an operator took it
	Cancelled Cause = "cancelled" // an operator revoked the term before it
	Recovery  Cause = "recovery"  // a holder asked for a token above one the store no longer knew
)

// End says how a term ended. The empty End is a term that nothing has ended yet: it is alive, or its deadline has passed.
type End string

// The ends of a term.
const (
	EndReleased   End = "released"   // given back after success
	EndFailed     End = "failed"     // given back after failure
	EndExpired    End = "expired"    // the deadline passed, then another was granted
	EndTakenOver  End = "taken_over" // an operator's takeover, reservation or revocation
	EndSuperseded End = "superseded" // a reservation or revocation that the next grant ended
)

// HistoryLen is how many transfers a record remembers. For as long as a grant is among them, no late copy of its request is granted again.
const HistoryLen = 32

// Record is what a store remembers of one key. All times are on the store's clock, in UTC, whole microseconds. The zero Record is a key
// nothing is remembered of.
type Record struct {
	Key      string      `json:"key"`
	Token    fence.Token `json:"token"`
	Grant    fence.Grant `json:"grant"`
	Owner    string      `json:"owner,omitempty"`
	Instance string      `json:"instance,omitempty"`
	State    State       `json:"state"`
	Cause    Cause       `json:"cause"`
	// Ended says how the newest term ended, if something but its deadline ended it.
	Ended End    `json:"ended,omitempty"`
	Actor string `json:"actor,omitempty"`
	Note  string `json:"note,omitempty"`

	Acquired time.Time     `json:"acquired"`
	Renewed  time.Time     `json:"renewed"`
	Deadline time.Time     `json:"deadline"`
	TTL      time.Duration `json:"ttl"`

	// Every is the period of once-per-period work; Succeeded is when the last term that ended in success began.
	Every     time.Duration `json:"every,omitempty"`
	Succeeded time.Time     `json:"succeeded,omitzero"`
	// HoldUntil keeps the key from everybody until then, even when the work ended in success earlier.
	HoldUntil time.Time `json:"hold_until,omitzero"`

	Guards     []string  `json:"guards,omitempty"`
	Progress   string    `json:"progress,omitempty"`
	ProgressAt time.Time `json:"progress_at,omitzero"`

	// Terms counts the grants of this key. History holds the last HistoryLen transfers, oldest first; the newest one is the
	// record's own term.
	Terms   int64  `json:"terms"`
	History []Term `json:"history,omitempty"`
}

// Term is one transfer of a key: who got it, how, and how it ended.
type Term struct {
	Token    fence.Token `json:"token"`
	Grant    fence.Grant `json:"grant"`
	Owner    string      `json:"owner,omitempty"`
	Instance string      `json:"instance,omitempty"`
	State    State       `json:"state"` // what the transfer made of the key
	Cause    Cause       `json:"cause"`
	Actor    string      `json:"actor,omitempty"`
	Note     string      `json:"note,omitempty"`
	Acquired time.Time   `json:"acquired"`
	// Finished and Ended are set when the term is over.
	Finished time.Time `json:"finished,omitzero"`
	Ended    End       `json:"ended,omitempty"`
}

// IsZero reports whether nothing is remembered of the key.
func (r Record) IsZero() bool { return r.Key == "" }

// Stamp is what writes of the newest grant carry.
func (r Record) Stamp() fence.Stamp {
	return fence.Stamp{Key: r.Key, Token: r.Token, Grant: r.Grant}
}

// Alive reports whether the newest term is held and its deadline has not passed at now.
func (r Record) Alive(now time.Time) bool { return r.State == Held && now.Before(r.Deadline) }

// StateAt is the state at now: a record whose deadline has passed is free, whatever it was before.
func (r Record) StateAt(now time.Time) State {
	if r.IsZero() || r.State == Free || !now.Before(r.Deadline) {
		return Free
	}
	return r.State
}

// Quiet is the moment from which the record says nothing that a claim must respect: no lease, no reservation, no hold, no period, and no token
// ahead of the clock, as Above or a clock that stepped back leave one. A store drops the record a retention after it, and not before.
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

// Droppable reports whether the store may forget the record at now.
func (r Record) Droppable(now time.Time, retention time.Duration) bool {
	return !now.Before(r.Quiet().Add(retention))
}

// term finds the newest transfer of a grant. It costs nothing for a grant that is the record's own.
func (r Record) term(g fence.Grant) (Term, bool) {
	for i := len(r.History) - 1; i >= 0; i-- {
		if r.History[i].Grant == g {
			return r.History[i], true
		}
	}
	return Term{}, false
}

// clone lets a transition change the record without touching the caller's slices.
func (r Record) clone() Record {
	r.History = append(make([]Term, 0, len(r.History)+1), r.History...)
	r.Guards = append([]string(nil), r.Guards...)
	return r
}
