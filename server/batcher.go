package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
)

const (
	// maxFlying limits the calls of the store in flight, hanging ones included.
	maxFlying = 4
	// overtakeAfter is when a call without an answer is taken to hang.
	overtakeAfter = 100 * time.Millisecond
	// maxWaiting limits the requests that wait for a call.
	maxWaiting = 16 * wire.MaxBatch
)

// errBusy says that too many requests wait already.
var errBusy = errors.New("too many requests wait for the store")

// batcher sends requests of many clients to the store, or to the ledger, in few
// calls. Q is a request, and A its answer.
type batcher[Q, A any] struct {
	send    func(context.Context, []Q) []A // makes one call
	weigh   func([]Q) int                  // what requests count in a call
	err     func(*A) *error                // the error of an answer
	timeout time.Duration                  // of one call
	// called is told of each call of the store.
	called func(requests int, took time.Duration, err error)

	mu      sync.Mutex // guards the fields below
	waiting []*batch[Q, A]
	size    int // the weight of the requests in waiting
	flying  int // calls in flight
	hanging int // those of them that hang
}

// batch is the requests of one client's call.
type batch[Q, A any] struct {
	requests []Q
	weight   int
	answers  []A
	done     chan struct{} // closed when answers are set
}

// failed returns n answers that all say: the outcome is unknown, because of
// err.
func (b *batcher[Q, A]) failed(n int, err error) []A {
	answers := make([]A, n)
	for i := range answers {
		*b.err(&answers[i]) = store.Unknown(err)
	}
	return answers
}

// apply carries out the requests of one call, in their order. The error is
// errBusy: then none of them went to the store.
//
// Requests do not wait longer than a call of the store may take, nor longer
// than their client. A client takes a request without an answer to be over some
// time after it has left. A request that went out later could leave a grant
// behind that nobody knows of.
func (b *batcher[Q, A]) apply(ctx context.Context, requests []Q) ([]A, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	if ctx.Err() != nil {
		return b.failed(len(requests), wait.Ended(ctx)), nil
	}
	mine := &batch[Q, A]{requests: requests, weight: b.weigh(requests), done: make(chan struct{})}
	b.mu.Lock()
	if b.size+mine.weight > maxWaiting {
		b.mu.Unlock()
		return nil, errBusy
	}
	b.waiting, b.size = append(b.waiting, mine), b.size+mine.weight
	b.flush()
	b.mu.Unlock()
	late := time.NewTimer(b.timeout)
	defer late.Stop()
	select {
	case <-mine.done:
		return mine.answers, nil
	case <-ctx.Done():
	case <-late.C:
	}
	if b.withdraw(mine) {
		return nil, errBusy
	}
	select {
	case <-mine.done:
		return mine.answers, nil
	case <-ctx.Done():
		return b.failed(len(requests), wait.Ended(ctx)), nil // the call goes on
	}
}

// withdraw takes back a batch. It reports false if the batch is in a call of
// the store, or was.
func (b *batcher[Q, A]) withdraw(mine *batch[Q, A]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, mine)
	if i < 0 {
		return false
	}
	b.waiting, b.size = slices.Delete(b.waiting, i, i+1), b.size-mine.weight
	return true
}

// flush makes calls of the waiting batches, as far as they may be sent now. The
// caller holds the mutex.
func (b *batcher[Q, A]) flush() {
	for len(b.waiting) > 0 && b.flying < maxFlying && b.flying == b.hanging {
		n, size := 0, 0
		for n < len(b.waiting) && (n == 0 || size+b.waiting[n].weight <= wire.MaxBatch) {
			size += b.waiting[n].weight
			n++
		}
		together := slices.Clone(b.waiting[:n])
		b.waiting = slices.Clone(b.waiting[n:])
		b.size -= size
		b.flying++
		go b.carry(together)
	}
}

// carry makes one call of the store.
func (b *batcher[Q, A]) carry(together []*batch[Q, A]) {
	hangs := false
	timer := time.AfterFunc(overtakeAfter, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !hangs {
			hangs = true
			b.hanging++
			b.flush()
		}
	})
	var requests []Q
	for _, each := range together {
		requests = append(requests, each.requests...)
	}
	answers, sound := b.call(requests)
	for _, each := range together {
		n := len(each.requests)
		if sound {
			each.answers = answers[:n:n]
			answers = answers[n:]
		} else if each.answers = answers; len(together) > 1 {
			// One client's requests make the store fail in a way that no store
			// should. Alone, they fail alone.
			each.answers, _ = b.call(each.requests)
			b.unsure(each.answers)
		}
		close(each.done)
	}
	timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying--
	if hangs {
		b.hanging--
	}
	hangs = true // the timer may run just now
	b.flush()
}

// unsure takes back that requests have had no effect: the store was asked
// before, and that call may have had one.
func (b *batcher[Q, A]) unsure(answers []A) {
	for i := range answers {
		if err := b.err(&answers[i]); store.IsFault(*err) {
			*err = &store.UnknownError{Err: *err}
		}
	}
}

// call calls the store. If the store panics or miscounts, the answers are
// unknown, and sound is false.
func (b *batcher[Q, A]) call(requests []Q) (answers []A, sound bool) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	begun := time.Now()
	var failed error
	defer func() {
		if p := recover(); p != nil {
			failed = fmt.Errorf("the store panicked: %v", p)
		}
		if failed != nil {
			answers, sound = b.failed(len(requests), failed), false
		}
		for i := range answers {
			if err := *b.err(&answers[i]); failed == nil && errors.Is(err, store.ErrUnknown) {
				failed = err
			}
		}
		b.called(len(requests), time.Since(begun), failed)
	}()
	answers = b.send(ctx, requests)
	if len(answers) != len(requests) {
		failed = fmt.Errorf("the store gave %d answers to %d requests", len(answers), len(requests))
	}
	return answers, true
}
