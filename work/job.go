package work

import (
	"context"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Job is one attempt at an item, as its handler sees it. It is safe for
// concurrent use.
type Job struct {
	item   Item
	secret tenure.Secret
	cancel context.CancelCauseFunc
	ask    func(ctx context.Context, req Request) (Answer, error)

	mu   sync.Mutex
	done *Result // as CompleteIn wrote it
}

// Item returns the item as it was claimed, with payload and checkpoint. It must
// not be changed.
func (j *Job) Item() Item { return j.item }

// Payload returns the item's payload: the description of the work.
func (j *Job) Payload() []byte { return j.item.Payload }

// Checkpoint returns what an earlier attempt has saved, or nothing.
func (j *Job) Checkpoint() []byte { return j.item.Checkpoint }

// Stamp returns the stamp that every write to a guarded resource carries. It
// holds no secret.
func (j *Job) Stamp() fence.Stamp { return j.item.Stamp() }

// Deed returns what another process needs to act on the item. It holds the
// secret, which all items of the same claim share.
func (j *Job) Deed() tenure.Deed { return j.item.Deed(j.secret) }

// Report writes a progress marker to the ledger, for people to read. With
// Options.StallAfter set, the worker keeps the item alive only while Report or
// Save is called, here or by another process that has the deed.
//
// An error that matches ErrLost, ErrStale or ErrState says that the item no
// longer belongs to this worker. ErrUnknown says that the ledger did not
// answer; the call still counts as progress.
func (j *Job) Report(ctx context.Context, marker string) error {
	_, err := j.ask(ctx, Request{Verb: Report, Progress: marker})
	return err
}

// Save writes a checkpoint: what the next owner begins with if this one does
// not finish. Its errors are those of Report.
func (j *Job) Save(ctx context.Context, state []byte) error {
	_, err := j.ask(ctx, Request{Verb: Checkpoint, State: state})
	return err
}

// CompleteIn completes the item in the handler's own transaction, together with
// what the handler writes there. The ops are what the ledger's In method
// returns for the transaction.
//
// If CompleteIn returns an error, roll the transaction back and return the
// error. After the commit return any Result and no error; that Result is not
// used. If the commit failed, or its outcome is unknown, return its error. If
// it was committed after all, the item is done; otherwise it is tried again.
func (j *Job) CompleteIn(ctx context.Context, ops Operations, r Result) error {
	answers := ops.Apply(ctx, []Request{{
		Verb: Complete, ID: j.item.ID, Token: j.item.Record.Token, Secret: j.secret,
		Result: r.Body, Effects: r.Effects,
	}})
	if err := answers[0].Err; err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = &r
	return nil
}

// result returns what the attempt ends with. If CompleteIn has written a
// result, it is that one: completing again changes nothing.
func (j *Job) result(r Result) Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.done != nil {
		return *j.done
	}
	return r
}
