package tenure

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// Apply is the law of ownership. rec holds what the store remembers of the key,
// and is the zero Record if it remembers nothing. now is the store's time.
// Apply returns the record to keep. changed is false if the record already
// shows the request's effect, so that there is nothing to write.
//
// A refusal returns the unchanged record and one of: a [*HeldError], a
// [*NotOwnedError], or an error that matches [fence.ErrInvalid].
func Apply(rec Record, req Request, now time.Time) (next Record, changed bool, err error) {
	if err := req.Check(); err != nil {
		return rec, false, err
	}
	return apply(rec, req, req.Secret.Grant(), now)
}

// apply decides a request that has passed Check. g is the fingerprint of its
// secret.
func apply(rec Record, req Request, g fence.Grant, now time.Time) (next Record, changed bool, err error) {
	if !rec.IsZero() && rec.Key != req.Key {
		return rec, false, fmt.Errorf("%w request: it is for %q, the record is of %q",
			fence.ErrInvalid, req.Key, rec.Key)
	}
	now = Time(now)
	if err := checkClock(now); err != nil {
		return rec, false, err
	}
	req.TTL, req.Every, req.HoldFor = whole(req.TTL), whole(req.Every), whole(req.HoldFor)
	switch req.Verb {
	case Acquire:
		return acquire(rec, req, g, now)
	case Renew, Report, Checkpoint:
		return renew(rec, req, g, now)
	case Release:
		return release(rec, req, g, now)
	default:
		return byHand(rec, req, g, now)
	}
}

// Time returns t as records keep it: UTC, whole microseconds, without a
// monotonic reading.
func Time(t time.Time) time.Time { return t.Round(0).UTC().Truncate(time.Microsecond) }

// whole cuts d to whole microseconds, so that a deadline computed with it has
// no finer part.
func whole(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }

// checkClock refuses a clock that was never set or lies beyond the last token.
// No decision made by such a clock could be undone once it is set right.
func checkClock(now time.Time) error {
	if !now.After(time.Time{}) || now.After(time.UnixMicro(int64(fence.MaxToken))) {
		return fmt.Errorf("%w time %s: tokens reach from 1970 to 2255; set the store's clock right",
			fence.ErrInvalid, now.Format(time.RFC3339))
	}
	return nil
}

func acquire(rec Record, req Request, g fence.Grant, now time.Time) (Record, bool, error) {
	if rec.Grant == g && rec.Alive(now) {
		return rec, false, nil // the reply was lost: same answer, same deadline
	}
	if _, known := rec.term(g); known {
		// A secret is granted only once: a late copy of its request changes
		// nothing.
		return rec, false, notOwned(rec, g, now)
	}
	if held := refuse(rec, req, now); held != nil {
		return rec, false, held
	}
	next := rec.clone()
	cause := causeOf(rec, req, now)
	if cause != Handoff {
		next.Actor, next.Note = "", ""
	}
	next.Cause = cause
	if err := grant(&next, req, g, now, Held); err != nil {
		return rec, false, err
	}
	if req.Every > 0 && req.Every != rec.Every {
		next.Every, next.Grid = req.Every, time.Time{}
	}
	if req.HoldFor > 0 {
		next.HoldUntil = now.Add(req.HoldFor)
	}
	return next, true, nil
}

// refuse returns a HeldError if the request may not have the key now, or nil.
func refuse(rec Record, req Request, now time.Time) error {
	held := func(why Why, until time.Time) error {
		return &HeldError{Record: rec, Why: why, Until: until, Now: now}
	}
	switch rec.StateAt(now) {
	case Held:
		return held(WhyHeld, rec.Deadline)
	case Reserved:
		if rec.Owner != req.Owner {
			return held(WhyReserved, rec.Deadline)
		}
	}
	if rec.State == Free && rec.Ended == EndReleased && now.Before(rec.HoldUntil) {
		return held(WhyHold, rec.HoldUntil)
	}
	if due := rec.Due(req.Every); now.Before(due) {
		return held(WhyPeriod, due)
	}
	return nil
}

// causeOf derives a term's cause from the end of the term before it.
func causeOf(rec Record, req Request, now time.Time) Cause {
	switch {
	// Equal: the store has issued this token twice, because it forgot the first
	// time.
	case req.Above > 0 && req.Above >= rec.Token:
		return Recovery
	case rec.IsZero():
		return First
	case rec.State == Free && rec.Cause == Cancelled && rec.Ended == "":
		return Cancelled
	case rec.State == Free:
		return Released
	case rec.State == Reserved && now.Before(rec.Deadline):
		return Handoff
	}
	return Expired
}

// grant takes a new token, closes the term before it, and begins a term in the
// given state.
func grant(next *Record, req Request, g fence.Grant, now time.Time, state State) error {
	token, err := nextToken(next.Token, req.Above, now)
	if err != nil {
		return err
	}
	if n := len(next.History); n > 0 && next.History[n-1].Ended == "" {
		last := &next.History[n-1]
		last.Finished, last.Ended = now, EndTakenOver
		switch {
		case last.State != Held:
			last.Ended = EndSuperseded
		case !now.Before(next.Deadline):
			last.Finished, last.Ended = next.Deadline, EndExpired
		}
	}
	next.Key, next.Token, next.Grant = req.Key, token, g
	next.Owner, next.Instance = req.Owner, req.Instance
	next.State, next.Ended = state, ""
	next.Acquired, next.Renewed = now, now
	next.Deadline, next.TTL = now.Add(req.TTL), req.TTL
	next.HoldUntil = time.Time{}
	next.Progress, next.ProgressAt = "", time.Time{}
	// An operator who names no guards keeps the holder's. Until the fence is up
	// there, the next operator must find them too.
	if len(req.Guards) > 0 || !req.Verb.ByHand() {
		next.Guards = append([]string(nil), req.Guards...)
	}
	if state == Held {
		next.Terms++
	}
	next.History = append(next.History, Term{
		Token: token, Grant: next.Grant, Owner: next.Owner, Instance: next.Instance, State: state,
		Cause: next.Cause, Actor: next.Actor, Note: next.Note, Acquired: now,
	})
	if over := len(next.History) - HistoryLen; over > 0 {
		next.History = next.History[over:]
	}
	return nil
}

// nextToken returns max(previous + 1, above + 1, clock). It counts up while the
// store remembers the previous token, and starts from the clock after the store
// has forgotten it.
func nextToken(previous, above fence.Token, now time.Time) (fence.Token, error) {
	token := max(previous+1, above+1, fence.Token(now.UnixMicro()))
	if !token.Valid() {
		return 0, fmt.Errorf("%w token %d: tokens end at %d and the store's clock, now %s, has been far ahead; "+
			"delete the key's record from the store",
			fence.ErrInvalid, token, fence.MaxToken, now.Format(time.RFC3339))
	}
	return token, nil
}

func renew(rec Record, req Request, g fence.Grant, now time.Time) (Record, bool, error) {
	if rec.Grant != g || rec.State != Held || (!now.Before(rec.Deadline) && !req.Resume) {
		return rec, false, notOwned(rec, g, now)
	}
	next := rec.clone()
	switch req.Verb {
	case Report:
		next.Progress, next.ProgressAt = req.Progress, now
		return next, true, nil
	case Checkpoint:
		next.Checkpoint, next.ProgressAt = req.Checkpoint, now
		return next, true, nil
	}
	if req.TTL != 0 {
		next.TTL = req.TTL
	}
	// A shorter TTL does not bring the deadline nearer. The holder may not know
	// of this renewal yet, and counts on the deadline that it was told before.
	// A clock that has stepped back does: otherwise the key would stay held
	// until the clock has caught up.
	deadline := now.Add(next.TTL)
	if deadline.Before(rec.Deadline) && !now.Before(rec.Renewed) {
		deadline = rec.Deadline
	}
	next.Renewed, next.Deadline = now, deadline
	return next, true, nil
}

func release(rec Record, req Request, g fence.Grant, now time.Time) (Record, bool, error) {
	if !(rec.Grant == g && rec.Alive(now)) {
		if term, known := rec.term(g); known && (term.Ended == EndReleased || term.Ended == EndFailed) {
			return rec, false, nil // this holder has already released it
		}
		return rec, false, notOwned(rec, g, now)
	}
	next := rec.clone()
	next.State, next.Ended, next.Deadline = Free, EndReleased, now
	if req.Failed {
		next.Ended, next.HoldUntil = EndFailed, time.Time{}
	} else {
		next.Succeeded = rec.Acquired
		if rec.Every > 0 && rec.Grid.IsZero() {
			next.Grid = rec.Acquired
		}
	}
	last := &next.History[len(next.History)-1]
	last.Finished, last.Ended = now, next.Ended
	return next, true, nil
}

func byHand(rec Record, req Request, g fence.Grant, now time.Time) (Record, bool, error) {
	next := rec.clone()
	next.Actor, next.Note, next.Cause = req.Actor, req.Note, Operator
	state := Held
	switch req.Verb {
	case Reserve:
		state, req.Instance = Reserved, ""
	case Revoke:
		state, next.Cause = Free, Cancelled
		req.Owner, req.Instance, req.TTL = "", "", 0
	}
	if term, known := rec.term(g); known {
		switch {
		// The secret was used for another act. Without this refusal, this act
		// would be taken for done.
		case term.State != state || term.Cause != next.Cause:
			return rec, false, fmt.Errorf("%w secret: it has been used for another request on %q; "+
				"make a new one for each", fence.ErrInvalid, rec.Key)
		case rec.Grant == g && rec.Ended == "" && (state != Held || rec.Alive(now)):
			return rec, false, nil
		}
		return rec, false, notOwned(rec, g, now)
	}
	if err := grant(&next, req, g, now, state); err != nil {
		return rec, false, err
	}
	return next, true, nil
}
