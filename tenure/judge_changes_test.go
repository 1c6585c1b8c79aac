package tenure_test

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// transferred checks laws 1, 2, 4 and 8 at a transfer, and notes the transfer.
func (j *judge) transferred(q tenure.Request, now time.Time, next tenure.Record) error {
	g := q.Secret.Grant()
	n := j.newest()
	switch {
	case q.Verb != tenure.Acquire && !q.Verb.ByHand():
		return fmt.Errorf("law 7: a %s made a grant", q.Verb)
	case next.Grant != g:
		return errors.New("law 1: the grant is not the one that asked")
	case j.known(g) != nil:
		return errors.New("law 1: a secret was granted twice")
	}
	if wrong := j.token(q, now, next.Token); wrong != nil {
		return wrong
	}
	if j.steady && q.Verb == tenure.Acquire {
		if why := j.inTheWay(q, now); why != "" {
			return fmt.Errorf("law 4: granted although %s", why)
		}
	}
	if n != nil && n.ended == "" {
		n.ended = tenure.EndTakenOver
		switch {
		case n.state != tenure.Held:
			n.ended = tenure.EndSuperseded
		case !now.Before(n.told):
			n.ended = tenure.EndExpired
		}
	}
	tr := &transfer{token: next.Token, grant: g, owner: q.Owner, state: tenure.Held, began: now, told: now.Add(q.TTL), promised: now.Add(q.TTL)}
	tr.cause, tr.actor, tr.note = j.cause(q, now)
	switch q.Verb {
	case tenure.Acquire:
		if q.HoldFor > 0 {
			tr.holdUntil = now.Add(q.HoldFor)
		}
		if q.Every > 0 && q.Every != j.every {
			j.every, j.grid = q.Every, time.Time{}
		}
	case tenure.Reserve:
		tr.state = tenure.Reserved
	case tenure.Revoke:
		tr.state, tr.owner, tr.told, tr.promised = tenure.Free, "", now, now
	}
	j.transfers = append(j.transfers, tr)
	if next.State != tr.state || !next.Deadline.Equal(tr.told) || next.Owner != tr.owner || !next.Acquired.Equal(now) {
		return errors.New("the grant is not what was asked for")
	}
	if next.Every != j.every || !next.Grid.Equal(j.grid) {
		return fmt.Errorf("the period is %s on the grid of %s, want %s and %s", next.Every, next.Grid, j.every, j.grid)
	}
	if next.Checkpoint != j.checkpoint {
		return fmt.Errorf("the new term begins with the checkpoint %q, saved was %q", next.Checkpoint, j.checkpoint)
	}
	if next.Cause != tr.cause || next.Actor != tr.actor || next.Note != tr.note {
		return fmt.Errorf("law 8: cause %q, actor %q, note %q; want %q, %q, %q", next.Cause, next.Actor, next.Note, tr.cause, tr.actor, tr.note)
	}
	return nil
}

// cause returns the cause that a term beginning now must have.
func (j *judge) cause(q tenure.Request, now time.Time) (cause tenure.Cause, actor, note string) {
	n := j.newest()
	switch {
	case q.Verb == tenure.Revoke:
		return tenure.Cancelled, q.Actor, q.Note
	case q.Verb.ByHand():
		return tenure.Operator, q.Actor, q.Note
	case q.Above > 0 && (n == nil || q.Above >= n.token):
		return tenure.Recovery, "", ""
	case n == nil:
		return tenure.First, "", ""
	case n.released:
		return tenure.Released, "", ""
	case n.state == tenure.Free:
		return tenure.Cancelled, "", ""
	case n.state == tenure.Reserved && now.Before(n.told):
		return tenure.Handoff, n.actor, n.note
	}
	return tenure.Expired, "", ""
}

// token compares a new token with all tokens issued before, and notes it.
func (j *judge) token(q tenure.Request, now time.Time, token fence.Token) error {
	clock := fence.Token(now.UnixMicro())
	if n := j.newest(); n != nil && token == n.token {
		return fmt.Errorf("law 1: token %d was granted twice", token)
	} else if n != nil && token < n.token {
		return fmt.Errorf("law 2: token %d follows %d", token, n.token)
	}
	if token <= q.Above {
		return fmt.Errorf("law 2: token %d is not above %d", token, q.Above)
	}
	for _, old := range j.issued {
		switch {
		case token > old.token:
		case old.wiped:
			// Only a token issued a moment ago, or far above the clock, can be
			// issued again.
			if j.steady && !old.lifted && old.at.Before(now.Add(-time.Second)) {
				return fmt.Errorf("law 2: token %d follows %d, which was wiped", token, old.token)
			}
		case j.latest.Sub(now) < retention && token == old.token:
			return fmt.Errorf("law 1: token %d was granted twice", token)
		case j.latest.Sub(now) < retention:
			return fmt.Errorf("law 2: token %d follows %d, which was dropped", token, old.token)
		}
	}
	j.issued = append(j.issued, issue{token: token, at: now, lifted: token > clock+fence.Token(time.Second/time.Microsecond)})
	return nil
}

// changed checks law 7: only the holder changes a record, and only the fields
// that the verb is for.
func (j *judge) changed(before tenure.Record, q tenure.Request, now time.Time, next tenure.Record) error {
	n := j.newest()
	if !j.holds(q.Secret.Grant()) {
		return fmt.Errorf("law 7: a wrong grant changed the record by a %s", q.Verb)
	}
	if !now.Before(n.told) && !(q.Resume && q.Verb != tenure.Release) {
		return fmt.Errorf("law 7: a grant whose deadline has passed changed the record by a %s", q.Verb)
	}
	want := clone(before)
	switch q.Verb {
	case tenure.Renew:
		if j.steady && next.Deadline.Before(n.promised) {
			return errors.New("law 4: a renewal took back a promised deadline")
		}
		if q.TTL != 0 {
			want.TTL = q.TTL
		}
		if next.Deadline.Before(now.Add(want.TTL)) {
			return errors.New("a renewal gave less than was asked for")
		}
		if next.Deadline.After(now.Add(want.TTL)) && next.Deadline.After(n.told) {
			return errors.New("a renewal gave more than was asked for")
		}
		n.told = next.Deadline
		if n.told.After(n.promised) {
			n.promised = n.told
		}
		want.Renewed, want.Deadline = now, next.Deadline
	case tenure.Report:
		want.Progress, want.ProgressAt = q.Progress, now
	case tenure.Checkpoint:
		j.checkpoint = q.Checkpoint
		want.Checkpoint, want.ProgressAt = q.Checkpoint, now
	case tenure.Release:
		n.released, n.success, n.ended = true, !q.Failed, tenure.EndReleased
		want.State, want.Deadline = tenure.Free, now
		if q.Failed {
			n.ended, want.HoldUntil = tenure.EndFailed, time.Time{}
		} else {
			j.succeeded = n.began
			if j.every > 0 && j.grid.IsZero() {
				j.grid = n.began
			}
		}
		want.Ended, want.Succeeded, want.Grid = n.ended, j.succeeded, j.grid
		last := &want.History[len(want.History)-1]
		last.Ended, last.Finished = n.ended, now
	default:
		return fmt.Errorf("law 7: a %s of a known grant changed the record", q.Verb)
	}
	if !reflect.DeepEqual(next, want) {
		return fmt.Errorf("law 7: a %s changed more than it is for; want %+v", q.Verb, want)
	}
	return nil
}
