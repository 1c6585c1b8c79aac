package work

import (
	"context"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Job is one attempt at an item, as its handler sees it. It is safe for concurrent use.
type Job struct {
	item   Item
	secret tenure.Secret
	cancel context.CancelCauseFunc
	ask    func(ctx context.Context, req Request) (Answer, error)

	mu   sync.Mutex
	done *Result // of CompleteIn
}

// Item is the item as it was claimed, with payload and checkpoint. It must not be changed.
func (j *Job) Item() Item { return j.item }

// Payload is what is to be done.
func (j *Job) Payload() []byte { return j.item.Payload }

// Checkpoint is what the attempt before has saved; empty if there was none, or it saved nothing.
func (j *Job) Checkpoint() []byte { return j.item.Checkpoint }

// Stamp is what every write to a guarded resource carries. It holds no secret.
func (j *Job) Stamp() fence.Stamp { return j.item.Record.Stamp() }

// Deed lets another process act on the item. It holds the secret, which is also that of the items claimed together with this one.
func (j *Job) Deed() tenure.Deed { return j.item.Deed(j.secret) }

// Report tells the ledger, and who looks there, how far the work has got. With StallAfter set, the item is kept alive only as long as Report or Save is called, here or by the deed. An error that matches ErrLost, ErrStale or ErrState says that the item is no longer this worker's; one
// that matches ErrUnknown that the ledger could not be asked: the progress counts all the same.
func (j *Job) Report(ctx context.Context, marker string) error {
	_, err := j.ask(ctx, Request{Verb: Report, Progress: marker})
	return err
}

// Save keeps a checkpoint: what the next owner begins with, should this one not finish. Its errors are those of Report.
func (j *Job) Save(ctx context.Context, state []byte) error {
	_, err := j.ask(ctx, Request{Verb: Checkpoint, State: state})
	return err
}

// CompleteIn completes the item in the handler's own transaction, together with what the handler writes there: ops is what the ledger's In returns for it. If it returns an error, roll the transaction back and return the error. After the commit return any
// Result and no error: it is not used. If the commit failed, or nobody knows, return its error: should it have been committed after all, the item is done, and otherwise it is tried again.
func (j *Job) CompleteIn(ctx context.Context, ops Operations, r Result) error {
	answers := ops.Apply(ctx, []Request{{Verb: Complete, ID: j.item.ID, Token: j.item.Record.Token, Secret: j.secret, Result: r.Body, Effects: r.Effects}})
	if err := answers[0].Err; err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = &r
	return nil
}

// result is what the attempt ends with: the one already written, if there is one. It is sent again, which changes nothing.
func (j *Job) result(r Result) Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.done != nil {
		return *j.done
	}
	return r
}
