package work

import (
	"cmp"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// byOwner decides about an owner's request. It checks the token first, then the
// state.
func byOwner(it Item, req Request, now time.Time) (Item, bool, error) {
	if err := admit(it, req); err != nil {
		return it, false, err
	}
	if it.State != Running {
		if repeated(it, req.Verb) {
			return it, false, nil
		}
		return refuse(it, req, "this grant has given it back already")
	}
	switch req.Verb {
	case Heartbeat:
		return heartbeat(it, req, now)
	case Report:
		rec, _, err := tenure.Apply(it.Record, tenure.Request{
			Verb: tenure.Report, Key: it.Key(), Secret: req.Secret, Progress: req.Progress, Resume: true,
		}, now)
		it.Record = rec
		return it, true, err
	case Checkpoint:
		it.Checkpoint, it.CheckpointAt = req.State, now
		return it, true, nil
	case Complete:
		return complete(it, req, now)
	case Fail:
		return fail(it, req, now)
	default:
		return release(it, req, now)
	}
}

// repeated reports whether the same verb has already ended the newest term.
// Then the request is a copy, for example one sent again after a lost reply.
func repeated(it Item, verb Verb) bool {
	switch verb {
	case Complete:
		return it.State == Done && it.Record.Ended == tenure.EndReleased
	case Fail:
		return it.Record.Ended == tenure.EndFailed
	case Release:
		return it.State == Waiting && it.Record.Ended == tenure.EndReleased
	}
	return false
}

// heartbeat renews the lease, also after the deadline: the token proves that
// nobody else was granted the item.
func heartbeat(it Item, req Request, now time.Time) (Item, bool, error) {
	rec, _, err := tenure.Apply(it.Record, tenure.Request{
		Verb: tenure.Renew, Key: it.Key(), Secret: req.Secret, TTL: req.TTL, Resume: true,
	}, now)
	if err != nil {
		return it, false, err
	}
	it.Record = rec
	return it, true, nil
}

// giveBack ends the owner's term, whether or not its deadline has passed. The
// record becomes free and ended, with Renewed and Deadline set to now.
func giveBack(it Item, req Request, failed bool, now time.Time) (tenure.Record, error) {
	rec, _, err := tenure.Apply(it.Record, tenure.Request{
		Verb: tenure.Renew, Key: it.Key(), Secret: req.Secret, Resume: true,
	}, now)
	if err != nil {
		return it.Record, err
	}
	rec, _, err = tenure.Apply(rec, tenure.Request{
		Verb: tenure.Release, Key: it.Key(), Secret: req.Secret, Failed: failed,
	}, now)
	rec.Succeeded = time.Time{} // only periodic leases use it
	return rec, err
}

func complete(it Item, req Request, now time.Time) (Item, bool, error) {
	rec, err := giveBack(it, req, false, now)
	if err != nil {
		return it, false, err
	}
	it.Record = rec
	it.State, it.Finished = Done, now
	it.Result, it.Error = req.Result, ""
	it.Checkpoint, it.CheckpointAt = nil, time.Time{}
	return it, true, nil
}

func fail(it Item, req Request, now time.Time) (Item, bool, error) {
	rec, err := giveBack(it, req, true, now)
	if err != nil {
		return it, false, err
	}
	it.Record, it.Error = rec, req.Error
	if req.Final || it.Attempts >= it.Limit {
		it.State, it.Finished = Dead, now
		return it, true, nil
	}
	delay := whole(req.Delay)
	if delay == 0 {
		delay = whole(Backoff(it.ID, it.Attempts))
	}
	it.State, it.Ready = Waiting, now.Add(delay)
	return it, true, nil
}

func release(it Item, req Request, now time.Time) (Item, bool, error) {
	rec, err := giveBack(it, req, false, now)
	if err != nil {
		return it, false, err
	}
	it.Record = rec
	it.State, it.Attempts = Waiting, max(it.Attempts-1, 0)
	it.Error = cmp.Or(req.Error, it.Error)
	if req.Delay > 0 {
		it.Ready = now.Add(whole(req.Delay))
	}
	return it, true, nil
}
