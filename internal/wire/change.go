package wire

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// The kinds of events in the stream of all changes.
const (
	// Transfer: somebody got a key, or it was reserved or revoked.
	Transfer = "transfer"
	// End: a term has ended without an operator: released, failed, expired.
	End = "end"
	// Refusal: an act of a former owner was refused, or let in by a trial.
	Refusal = "refusal"
	// Missed: changes before this event are not known any more.
	Missed = "missed"
)

// Change is a transfer, the end of a term, or a refusal. Its names are those of
// croft watch under --json.
type Change struct {
	Kind string    `json:"-"`
	Time time.Time `json:"time"`
	// Change says what happened: granted, taken_over, reserved, revoked,
	// released, failed, expired, refused, observed or unsure.
	Change   string       `json:"change"`
	Key      string       `json:"key"`
	Token    fence.Token  `json:"token"`
	Owner    string       `json:"owner,omitempty"`
	Instance string       `json:"instance,omitempty"`
	Cause    tenure.Cause `json:"cause,omitempty"`
	Actor    string       `json:"actor,omitempty"`
	Note     string       `json:"note,omitempty"`
	// From is the owner whose term the transfer ended, if it is known.
	From string `json:"from,omitempty"`

	// The rest belongs to refusals.
	Act      string      `json:"act,omitempty"`
	Code     string      `json:"code,omitempty"`
	Newest   fence.Token `json:"newest,omitempty"`
	Target   string      `json:"target,omitempty"`
	Count    int         `json:"count,omitempty"`
	Total    int         `json:"total,omitempty"`
	Admitted bool        `json:"admitted,omitempty"`
}

// Bytes writes the change.
func (c Change) Bytes() []byte { return encode(c) }

// ChangesOf appends the changes of a record with history that lie after since
// and not after now.
func ChangesOf(to []Change, rec tenure.Record, since, now time.Time) []Change {
	for i, term := range rec.History {
		c := Change{
			Kind: Transfer, Time: term.Acquired, Change: "granted", Key: rec.Key, Token: term.Token,
			Owner: term.Owner, Instance: term.Instance, Cause: term.Cause, Actor: term.Actor, Note: term.Note,
		}
		switch {
		case term.State == tenure.Free:
			c.Change = "revoked"
		case term.State == tenure.Reserved:
			c.Change = "reserved"
		case term.Cause == tenure.Operator:
			c.Change = "taken_over"
		}
		if i > 0 && rec.History[i-1].Ended == tenure.EndTakenOver {
			c.From = rec.History[i-1].Owner
		}
		if term.Acquired.After(since) {
			to = append(to, c)
		}
		last := i == len(rec.History)-1
		at, ended := term.Finished, string(term.Ended)
		if last && term.Ended == "" && rec.State != tenure.Free && !rec.Deadline.After(now) {
			at, ended = rec.Deadline, string(tenure.EndExpired)
		}
		switch tenure.End(ended) {
		case tenure.EndReleased, tenure.EndFailed, tenure.EndExpired:
			if at.After(since) {
				to = append(to, Change{
					Kind: End, Time: at, Change: ended, Key: rec.Key, Token: term.Token, Owner: term.Owner,
					Instance: term.Instance,
				})
			}
		}
	}
	return to
}

// ChangeOf makes a change of a refusal.
func ChangeOf(r refusals.Refusal) Change {
	return Change{
		Kind: Refusal, Time: r.At, Change: string(r.Kind()), Key: r.Key, Token: r.Token, Owner: r.Owner, Act: r.Act,
		Code: r.Code, Newest: r.Newest, Target: r.Target, Count: r.Count, Total: r.Total, Admitted: r.Admitted,
	}
}
