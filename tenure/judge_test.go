package tenure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// judge checks every answer of a law and says which promise it breaks. It keeps
// its own account of all grants and of the deadlines their holders were told.
// It reads records only to compare them with that account.
type judge struct {
	// The clock does not step, so that law 4 applies.
	steady bool
	// Every token ever issued, also those the store has forgotten.
	issued []issue
	latest time.Time // the latest time that the clock has shown
	// What the store must remember: the transfers since it last forgot the key,
	// and the last success.
	transfers []*transfer
	succeeded time.Time
	// The period of the last claim that had one, and when the first term with
	// it that succeeded began.
	every time.Duration
	grid  time.Time
	// What a holder saved last.
	checkpoint string
}

// issue is a token that was issued.
type issue struct {
	token  fence.Token
	at     time.Time
	lifted bool // far above the clock, by Above or because the clock had stepped
	wiped  bool // the store was wiped after it
}

// transfer is one grant, reservation or revocation.
type transfer struct {
	token             fence.Token
	grant             fence.Grant
	owner             string
	state             tenure.State
	cause             tenure.Cause
	actor, note       string
	began             time.Time
	told, promised    time.Time // the last deadline that the holder was told, and the latest of all
	holdUntil         time.Time
	released, success bool
	ended             tenure.End
}

func (j *judge) clock(now time.Time) {
	if now.After(j.latest) {
		j.latest = now
	}
}

// dropped notes that the store has forgotten a record that it may drop. wiped
// notes that it has lost a record that it must keep.
func (j *judge) dropped() {
	j.transfers, j.succeeded, j.every, j.grid, j.checkpoint = nil, time.Time{}, 0, time.Time{}, ""
}

func (j *judge) wiped() {
	j.dropped()
	for i := range j.issued {
		j.issued[i].wiped = true
	}
}

// newest returns the newest transfer, or nil.
func (j *judge) newest() *transfer {
	if len(j.transfers) == 0 {
		return nil
	}
	return j.transfers[len(j.transfers)-1]
}

// known returns the transfer of a grant if the history still has room for it.
func (j *judge) known(g fence.Grant) *transfer {
	for _, tr := range slices.Backward(j.transfers[max(0, len(j.transfers)-tenure.HistoryLen):]) {
		if tr.grant == g {
			return tr
		}
	}
	return nil
}

// holds reports whether a grant is the newest and has not been released.
func (j *judge) holds(g fence.Grant) bool {
	n := j.newest()
	return n != nil && n.grant == g && n.state == tenure.Held && !n.released
}

// judge checks one answer. before is a copy of rec, which the law must not have
// changed.
func (j *judge) judge(decide law, before, rec tenure.Record, q tenure.Request, now time.Time, next tenure.Record, changed bool, err error) error {
	same := reflect.DeepEqual(next, before)
	switch {
	case !reflect.DeepEqual(rec, before):
		return errors.New("purity: the law changed what it was given")
	case err != nil && (changed || !same):
		return errors.New("a refusal changed something")
	case err != nil:
		return j.refused(before, q, now, err)
	case !changed && !same:
		return errors.New("it changed something and said it did not")
	}
	if err := next.Check(); err != nil {
		return fmt.Errorf("law 8: %w", err)
	}
	var wrong error
	switch {
	case next.Token != before.Token || next.Grant != before.Grant || len(j.transfers) == 0:
		wrong = errors.Join(j.transferred(q, now, next), readable(next))
	case changed:
		wrong = j.changed(before, q, now, next)
	default:
		wrong = j.repeated(q, now)
	}
	if wrong != nil {
		return wrong
	}
	if wrong := j.history(next); wrong != nil {
		return wrong
	}
	again, _, err := decide(clone(next), q, now)
	if err != nil || !reflect.DeepEqual(again, next) {
		return fmt.Errorf("idempotence: asked again it answers %s and %+v", fmt.Sprint(err), again)
	}
	return nil
}

// refused checks that a refusal is true and that it was necessary.
func (j *judge) refused(rec tenure.Record, q tenure.Request, now time.Time, err error) error {
	g := q.Secret.Grant()
	n, fresh := j.newest(), j.known(q.Secret.Grant()) == nil
	var held *tenure.HeldError
	var not *tenure.NotOwnedError
	switch {
	case errors.As(err, &held):
		if q.Verb != tenure.Acquire || !fresh || held.Remaining() <= 0 || !held.Now.Equal(now) || !reflect.DeepEqual(held.Record, rec) {
			return fmt.Errorf("the refusal is wrong: %+v", *held)
		}
	case errors.As(err, &not):
		if not.Grant != g || !not.Now.Equal(now) || !reflect.DeepEqual(not.Record, rec) || (not.Why == tenure.WhyUnknown) != fresh {
			return fmt.Errorf("the refusal is wrong: %+v", *not)
		}
	case fresh || !q.Verb.ByHand() || !errors.Is(err, fence.ErrInvalid):
		return errors.New("the refusal is of no kind")
	}
	// A law that refuses everything must not pass.
	switch {
	case q.Verb.ByHand() && fresh:
		return errors.New("an operator was refused")
	case j.holds(g) && n.told.After(now) && !q.Verb.ByHand():
		return errors.New("the holder was refused")
	case j.holds(g) && q.Resume && !q.Verb.ByHand() && q.Verb != tenure.Acquire && q.Verb != tenure.Release:
		return errors.New("the last holder could not resume")
	case q.Verb == tenure.Acquire && fresh && j.inTheWay(q, now) == "":
		return errors.New("a claim was refused though nothing stood in its way")
	}
	return nil
}

// inTheWay says what forbids a grant now, or returns "".
func (j *judge) inTheWay(q tenure.Request, now time.Time) string {
	n := j.newest()
	switch {
	case n == nil:
		return ""
	case n.state == tenure.Held && !n.released && now.Before(n.promised):
		return "its deadline has not passed"
	case n.state == tenure.Reserved && now.Before(n.promised) && q.Owner != n.owner:
		return "it is reserved for another"
	case n.released && n.success && now.Before(n.holdUntil):
		return "it is on hold"
	case q.Every > 0 && !j.succeeded.IsZero() && j.slot(q.Every, now) <= j.slot(q.Every, j.succeeded):
		return "it has been done in this period"
	}
	return ""
}

// slot returns the number of the slot that t lies in. The grid, or the last
// success if the period has no grid yet, is in the middle of slot 0.
func (j *judge) slot(every time.Duration, t time.Time) int64 {
	middle := j.grid
	if every != j.every || middle.IsZero() {
		middle = j.succeeded
	}
	begin := middle.Add(-every / 2)
	n := int64(t.Sub(begin) / every)
	if begin.Add(time.Duration(n) * every).After(t) {
		n--
	}
	return n
}

// repeated checks an answer that granted the request and changed nothing: the
// record must already show the request's effect.
func (j *judge) repeated(q tenure.Request, now time.Time) error {
	tr := j.known(q.Secret.Grant())
	switch {
	case tr == nil:
		return errors.New("law 7: a wrong grant got a yes")
	case q.Verb == tenure.Release && tr.released:
		return nil
	case tr != j.newest() || tr.released:
		return errors.New("law 7: an old grant got a yes")
	case q.Verb == tenure.Acquire && tr.state == tenure.Held && now.Before(tr.told):
		return nil
	case q.Verb == tenure.Takeover && tr.state == tenure.Held && tr.cause == tenure.Operator && now.Before(tr.told):
		return nil
	case q.Verb == tenure.Reserve && tr.state == tenure.Reserved, q.Verb == tenure.Revoke && tr.state == tenure.Free:
		return nil
	case q.Verb == tenure.Renew || q.Verb == tenure.Report || q.Verb == tenure.Checkpoint: // sent twice at the same moment
		return nil
	}
	return fmt.Errorf("a %s got a yes and did nothing", q.Verb)
}

// readable checks that a record can be written and read again.
func readable(rec tenure.Record) error {
	if len(rec.History) > 4 {
		return nil // adds no case, and is slow under the race detector
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	var back tenure.Record
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, rec) {
		return fmt.Errorf("written and read it is %+v", back)
	}
	return nil
}

// history compares the record's history with the judge's account.
func (j *judge) history(rec tenure.Record) error {
	grants := int64(0)
	for _, tr := range j.transfers {
		if tr.state == tenure.Held {
			grants++
		}
	}
	if rec.Terms != grants {
		return fmt.Errorf("%d terms are counted, there were %d", rec.Terms, grants)
	}
	past := j.transfers[max(0, len(j.transfers)-tenure.HistoryLen):]
	if len(rec.History) != len(past) {
		return fmt.Errorf("%d transfers in the history, want %d", len(rec.History), len(past))
	}
	for i, tr := range past {
		term := rec.History[i]
		if term.Token != tr.token || term.Grant != tr.grant || term.Owner != tr.owner || term.State != tr.state || term.Ended != tr.ended || !term.Acquired.Equal(tr.began) {
			return fmt.Errorf("the history says %+v of %+v", term, *tr)
		}
		if term.Cause != tr.cause || term.Actor != tr.actor || term.Note != tr.note {
			return fmt.Errorf("law 8: the history says %+v of %+v", term, *tr)
		}
	}
	return nil
}
