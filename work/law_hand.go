package work

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// byHand decides about an operator's request. Each act burns a token through
// the law of package tenure, with actor and note.
//
// A copy of the act that made the newest term succeeds and changes nothing. A
// copy of an older act is refused as stale: the act was done, and something has
// happened since.
func byHand(it Item, req Request, now time.Time) (Item, bool, error) {
	if it.Record.Grant == req.Secret.Grant() && actRepeated(it, req.Verb) {
		return it, false, nil
	}
	act := tenure.Request{
		Verb: tenure.Takeover, Key: it.Key(), Secret: req.Secret, Actor: req.Actor, Note: req.Note,
	}
	switch req.Verb {
	case Cancel:
		if it.State.Finished() {
			return refuse(it, req, "only a live item can be cancelled")
		}
		act.Verb = tenure.Revoke
	case Reassign:
		if it.State.Finished() {
			return refuse(it, req, "only a live item can be reassigned; replay it first")
		}
		act.Verb, act.Owner, act.TTL = tenure.Reserve, req.Owner, cmp.Or(req.TTL, DefaultReservation)
	case Takeover:
		if it.State == Done || it.State == Cancelled {
			return refuse(it, req, "there is nothing left to do; replay it first")
		}
		act.Owner, act.Instance, act.TTL = cmp.Or(req.Owner, req.Actor), req.Instance,
			cmp.Or(req.TTL, DefaultTTL)
	case RunNow:
		if it.State != Waiting {
			return refuse(it, req, "only a waiting item can be made ready; replay a finished one")
		}
		act.Owner, act.TTL = req.Actor, DefaultTTL
	default:
		switch {
		case !it.State.Finished():
			return refuse(it, req, "only a finished item can be replayed")
		case it.State == Done && !req.Again:
			return refuse(it, req, "its effects have gone out; "+
				"replay it with again to have all of it done a second time")
		}
		act.Owner, act.TTL = req.Actor, DefaultTTL
	}
	rec, err := byLaw(it, act, now)
	if err != nil {
		return it, false, err
	}
	switch req.Verb {
	case Cancel:
		it.State, it.Finished = Cancelled, now
	case Reassign:
		it.State = Waiting
	case Takeover:
		it.State, it.Finished, it.Attempts = Running, time.Time{}, it.Attempts+1
	default:
		if rec, err = byLaw(Item{ID: it.ID, Queue: it.Queue, Record: rec}, tenure.Request{
			Verb: tenure.Release, Key: it.Key(), Secret: req.Secret, Failed: true,
		}, now); err != nil {
			return it, false, err
		}
		it.State = Waiting
		if req.Verb == RunNow {
			if it.Ready.After(now) {
				it.Ready = now
			}
			break
		}
		it.Finished, it.Attempts, it.Error = time.Time{}, 0, ""
		it.Ready = now.Add(whole(req.Delay))
		if req.Again {
			it.Generation++
			it.Result, it.Checkpoint, it.CheckpointAt = nil, nil, time.Time{}
		}
	}
	it.Record = rec
	return it, true, nil
}

// actRepeated reports whether this act made the newest term, and nothing has
// happened to the item since.
func actRepeated(it Item, verb Verb) bool {
	rec := it.Record
	switch verb {
	case Cancel:
		return it.State == Cancelled && rec.Cause == tenure.Cancelled
	case Reassign:
		return it.State == Waiting && rec.State == tenure.Reserved
	case Takeover:
		return it.State == Running && rec.Cause == tenure.Operator
	}
	return it.State == Waiting && rec.Cause == tenure.Operator && rec.Ended == tenure.EndFailed
}

// byLaw applies one transition to the item's record. It turns tenure's "not
// owned" into a stale write.
func byLaw(it Item, act tenure.Request, now time.Time) (tenure.Record, error) {
	rec, _, err := tenure.Apply(it.Record, act, now)
	var gone *tenure.NotOwnedError
	if !errors.As(err, &gone) {
		return rec, err
	}
	stale := &fence.StaleError{
		Presented: fence.Stamp{Key: it.Key(), Grant: act.Secret.Grant()}, Newest: it.Mark(),
		PresentedOwner: act.Actor, NewestOwner: it.Record.Owner,
	}
	for _, term := range it.Record.History {
		if term.Grant == stale.Presented.Grant {
			stale.Presented.Token = term.Token
		}
	}
	// The act made the newest term itself, and that term has ended.
	if stale.Presented.Token == it.Record.Token {
		return rec, &StateError{
			What: "repeat that act on", Of: "item " + string(it.ID), State: string(it.State),
			Why: "it was done, and is over; make a new secret for a new one",
		}
	}
	return rec, stale
}

// requeue takes an item from an owner whose deadline has passed. The reconciler
// acquires the lease, which burns a token and makes the record's cause
// "expired". Then it releases the lease at once. The attempt has failed: the
// item keeps that as its error, and waits as after any failure. An item that
// kills its workers would otherwise kill one after the other, without a pause.
func requeue(it Item, req Request, now time.Time) (Item, bool, error) {
	rec := it.Record
	switch {
	case rec.Grant == req.Secret.Grant() && rec.Cause == tenure.Expired && rec.Ended == tenure.EndFailed:
		return it, false, nil
	case rec.Token != req.Token: // compare and swap: somebody was faster
		return it, false, &fence.StaleError{
			Presented: req.Stamp(it.Queue), Newest: it.Mark(), PresentedOwner: req.Owner, NewestOwner: rec.Owner,
		}
	case it.State != Running:
		return refuse(it, req, "its owner has given it back")
	case !it.Lapsed(now):
		return refuse(it, req, fmt.Sprintf("its owner was heard of; it lapses at %s",
			rec.Deadline.Format(time.RFC3339Nano)))
	}
	held, err := byLaw(it, tenure.Request{
		Verb: tenure.Acquire, Key: it.Key(), Secret: req.Secret,
		Owner: req.Owner, Instance: req.Instance, TTL: rec.TTL,
	}, now)
	if err != nil {
		return it, false, err
	}
	if it.Record, err = byLaw(Item{ID: it.ID, Queue: it.Queue, Record: held}, tenure.Request{
		Verb: tenure.Release, Key: it.Key(), Secret: req.Secret, Failed: true,
	}, now); err != nil {
		return it, false, err
	}
	it.Error = fmt.Sprintf("its worker was lost: attempt %d of %d ended without a word from it", it.Attempts, it.Limit)
	if it.Attempts >= it.Limit {
		it.State, it.Finished = Dead, now
		return it, true, nil
	}
	it.State, it.Ready = Waiting, now.Add(whole(Backoff(it.ID, it.Attempts)))
	return it, true, nil
}
