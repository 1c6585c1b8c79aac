package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// reply is one answer of the store, and when its request was sent.
type reply struct {
	answer store.Answer
	first  clock.Instant // just before the first copy
	sent   clock.Instant // just before the copy that was answered
}

// ask puts one request until its outcome is known or ctx ends: an unknown outcome is asked for again, with the same secret, and so is a call that
// hangs. Without a deadline in ctx it gives up after bound. What another wants sent, if not nil, goes along with the first copy. The request has been checked.
func (c *Client) ask(ctx context.Context, req tenure.Request, bound time.Duration, along *submission) (reply, error) {
	if err := ended(ctx); err != nil && req.Verb != tenure.Release { // giving back is worth a message all the same
		return reply{}, fmt.Errorf("%s of %q was not tried: %w", req.Verb, req.Key, err)
	}
	q := &question{c: c, asked: c.clk.Now(), patience: min(patientFor, bound), request: [1]tenure.Request{req}}
	request := q.first.address(&q.mail, q.request[:], fresh, 0)
	request.next = along
	r, answered := q.put(ctx, request)
	if answered && known(r.answer.Err) {
		return r, r.answer.Err
	}
	if _, bounded := ctx.Deadline(); !bounded { // the first try is bounded anyway
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, bound-c.clk.Now().Sub(q.asked))
		defer cancel()
	}
	last, heard, pause := store.Unknown(errors.New("no answer yet")), false, 25*time.Millisecond
	for tries := 1; ; tries++ {
		if answered {
			if !heard || ctx.Err() == nil { // what the end of ctx did to the last copy says less than what was wrong with those before
				last, heard = r.answer.Err, true
			}
			c.emit(Event{Kind: EventUnknown, Key: req.Key, Verb: req.Verb, Err: r.answer.Err})
			c.sleep(ctx, pause)
			pause = min(2*pause, time.Second)
		}
		err := ended(ctx)
		if c.life.Err() != nil {
			err = ErrClosed
		}
		if err != nil {
			if req.Verb != tenure.Release {
				c.calls.withdraw(q.newest) // it is not to happen when nobody expects it any more
			}
			return reply{}, store.Unknown(fmt.Errorf("%s of %q has no known outcome after %d tries; it is safe to repeat: %w (%w)", req.Verb, req.Key, tries, last, err))
		}
		if r, answered = q.put(ctx, new(letter).address(&q.mail, q.request[:], again, 0)); answered && known(r.answer.Err) {
			c.emit(Event{Kind: EventResolved, Key: req.Key, Verb: req.Verb, Outcome: outcomeOf(r.answer.Err)})
			return r, r.answer.Err
		}
	}
}

// question is one request that is put until it is answered.
type question struct {
	c        *Client
	asked    clock.Instant
	patience time.Duration // with one copy of it
	request  [1]tenure.Request
	first    letter
	newest   *submission // the last copy
	mail     mail
}

// put sends a copy, unless the last one has yet to be sent, and waits for an answer to any.
func (q *question) put(ctx context.Context, request *submission) (reply, bool) {
	if q.newest == nil || !q.c.calls.waits(q.newest) {
		q.newest = request
		q.c.calls.carry(ctx, request)
	}
	l := q.mail.take()
	if l == nil {
		l = q.c.await(&q.mail, q.patience, ctx.Done(), q.c.life.Done())
	}
	if l == nil {
		return reply{}, false
	}
	return reply{*l.answer, q.asked, l.sent}, true
}

// sleep passes the time until ctx or the client ends.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	timer := c.clk.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-c.life.Done():
	}
}

// ended is why a context is over, with its cause, or nil.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// known reports whether an answer's error is an answer.
func known(err error) bool { return outcomeOf(err) != OutcomeUnknown }

// outcomeOf sorts an answer's error.
func outcomeOf(err error) Outcome { return Outcome(engine.OutcomeOf(err)) }
