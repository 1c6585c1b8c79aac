package work

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/croft-dev/croft/fence"
)

// ItemOptions configure one item. A nil *ItemOptions and the zero ItemOptions
// are the defaults. [Request] says more about each field.
type ItemOptions struct {
	// ID names the item. Adding the same content again under it adds nothing.
	// Default: a new one.
	ID ID
	// Unique is an idempotency key of the queue. Adding the same content again
	// under it adds nothing. Default: none.
	Unique string
	// Partition is the part of the queue that the item belongs to, such as a
	// tenant: see [Item].
	Partition string
	// Priority is the first rule of the order of claims. Default: 0.
	Priority int
	// Limit is the attempt limit. Default: DefaultTries.
	Limit int
	// NotBefore or Delay say when the item may first be claimed. Default: at
	// once.
	NotBefore time.Time
	Delay     time.Duration
	// Guards are templates of the targets that the item's owners write to.
	// Default: none.
	Guards []string
}

// Enqueue adds an item to a queue, and returns the stored item. The payload is
// stored as JSON. A []byte is stored as it is. The handler gets it by [Handle].
//
// ops is a [Ledger], or a ledger's operations inside the caller's transaction.
//
// If the error matches [ErrUnknown], the item may have been added. With an ID
// or Unique in o, calling Enqueue again is then safe. If an item with the same
// ID or Unique has other content, the error matches [ErrConflict]. If the input
// is invalid or has no JSON form, the error matches [ErrInvalid].
func Enqueue[T any](ctx context.Context, ops Operations, queue string, payload T, o *ItemOptions) (Item, error) {
	body, raw := any(payload).([]byte)
	if !raw {
		var err error
		if body, err = json.Marshal(payload); err != nil {
			return Item{}, fmt.Errorf("%w payload for queue %q: %s has no JSON form: %w",
				fence.ErrInvalid, queue, reflect.TypeFor[T](), err)
		}
	}
	req := Request{Verb: Add, ID: NewID(), Queue: queue, Payload: body}
	if o != nil {
		if o.ID != "" {
			req.ID = o.ID
		}
		req.Unique, req.Partition, req.Priority, req.Limit = o.Unique, o.Partition, o.Priority, o.Limit
		req.NotBefore, req.Delay, req.Guards = o.NotBefore, o.Delay, o.Guards
	}
	answer := ops.Apply(ctx, []Request{req})[0]
	return answer.Item, answer.Err
}

// Handle makes a [Handler] of a function that takes the payload in its own
// type. It decodes the payload as [Enqueue] encodes it: from JSON, or as it is
// if T is []byte.
//
// If the payload is no T, the item is dead at once, and its Error says why.
// Another attempt could not read it either. An operator can replay the item
// once its workers can.
func Handle[T any](fn func(ctx context.Context, job *Job, payload T) (Result, error)) Handler {
	if fn == nil {
		return nil // Run refuses it
	}
	return func(ctx context.Context, job *Job) (Result, error) {
		var payload T
		if raw, is := any(&payload).(*[]byte); is {
			*raw = job.Payload()
		} else if err := json.Unmarshal(job.Payload(), &payload); err != nil {
			return Result{}, Final(fmt.Errorf("the payload of %d bytes cannot be read as %s: %w; "+
				"add the item in that form, or replay it when a worker can read it",
				len(job.Payload()), reflect.TypeFor[T](), err))
		}
		return fn(ctx, job, payload)
	}
}

// JSON makes the result of an item from a value, for a handler to return. The
// error is nil unless the value has no JSON form; it is then a [Final] one.
func JSON(v any, effects ...Emission) (Result, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Result{}, Final(fmt.Errorf("the result cannot be written as JSON: %w", err))
	}
	return Result{Body: body, Effects: effects}, nil
}
