package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// Acquire takes the lease on a key. While another holds the key, it waits at
// most WaitFor. When it returns a lease, the fence is up at every guard in o.
// Callers of one client that wait for one key get it in the order in which they
// came.
//
// A lease is not re-entrant. If this client holds the key already, another
// Acquire waits like any other, and its error says so. A function that holds a
// lease passes it on to the functions that it calls.
//
// The error matches [ErrHeld] if it is not the caller's turn, and [ErrUnknown]
// if the store did not answer. It is a [*GuardError] if a fence could not be
// raised, and matches [ErrInvalid] if the input is bad. After Close it matches
// [ErrClosed]. If ctx has ended, it also matches ctx.Err().
func (c *Client) Acquire(ctx context.Context, key string, o *LeaseOptions) (*Lease, error) {
	if o != nil && o.Slots != 0 {
		return c.acquireSlot(ctx, key, o)
	}
	p, err := c.newAcquire(key, o)
	if err != nil {
		return nil, err
	}
	return c.acquire(ctx, p)
}

func (c *Client) acquire(ctx context.Context, p *pending) (*Lease, error) {
	if err := wait.Ended(ctx); err != nil {
		return nil, fmt.Errorf("acquire %q: %w", p.Request.Key, err)
	}
	c.run(ctx, p)
	if err := p.Reply.Err; err != nil {
		var held *HeldError
		if errors.As(err, &held) && c.holds(held) {
			err = fmt.Errorf("%w; this client holds it itself: a lease is not re-entrant, "+
				"so pass the lease on instead of acquiring it again", err)
		}
		return nil, err
	}
	return c.leaseOf(ctx, p), nil
}

// holds reports whether a lease of this client is why a key cannot be had.
func (c *Client) holds(held *HeldError) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return held.Why == WhyHeld && c.engine.Holds(held.Record.Key, held.Record.Token)
}

// anySecret takes the place of the secret when the rest of a request is
// checked.
var anySecret = tenure.NewSecret()

// newAcquire fills in the defaults and checks the input.
func (c *Client) newAcquire(key string, options *LeaseOptions) (*pending, error) {
	var o LeaseOptions
	if options != nil {
		o = *options
	}
	if o.TTL == 0 {
		o.TTL = time.Minute
	}
	if o.MaxFailures == 0 {
		o.MaxFailures = 3
	}
	req := tenure.Request{
		Verb: tenure.Acquire, Key: key, Owner: c.o.Owner, Instance: c.o.Instance,
		TTL: o.TTL, Above: o.Above, Every: o.Every, HoldFor: o.HoldFor,
	}
	if o.Slots != 0 {
		return nil, fmt.Errorf("%w Slots %d: an election, and several keys together, have none", ErrInvalid, o.Slots)
	}
	for i, g := range o.Guards {
		if g == nil {
			return nil, fmt.Errorf("%w guard: number %d is nil", ErrInvalid, i+1)
		}
		req.Guards = append(req.Guards, g.Target())
	}
	probe := req
	probe.Secret = anySecret
	if err := probe.Check(); err != nil {
		return nil, err
	}
	if err := fence.CheckAhead(o.Above, time.Now()); err != nil { // guards would refuse the next token
		return nil, fmt.Errorf("above: %w", err)
	}
	if err := refusals.CheckKey(key); err != nil {
		return nil, err
	}
	if o.WaitFor < 0 {
		return nil, fmt.Errorf("%w WaitFor %s: it must be between 0 and %s", ErrInvalid, o.WaitFor, Forever)
	}
	policy := renewal.Policy{
		TTL: o.TTL, StallAfter: o.StallAfter, MaxHold: o.MaxHold, Notice: o.Notice, MaxFailures: o.MaxFailures,
	}
	if err := policy.Check(); err != nil {
		return nil, err
	}
	return &pending{guards: o.Guards, Call: engine.Call{
		Request: req, Policy: policy, WaitFor: o.WaitFor, Guarded: len(o.Guards) > 0,
	}}, nil
}

// raiseFor raises the fence for an acquire that was granted, and tells the
// engine how that ended.
func (c *Client) raiseFor(ctx context.Context, p *pending) {
	l := c.leaseOf(ctx, p)
	ctx, stop := l.within(ctx)
	defer stop()
	var outcomes []error
	for _, r := range c.raise(ctx, l.Stamp(), p.guards) {
		if r.Err != nil {
			outcomes = append(outcomes, &GuardError{Target: r.Target, Err: r.Err})
		}
	}
	above, err := engine.Above(outcomes, time.Now())
	now := c.lock()
	c.engine.Raised(now, &p.Call, above, err)
	c.do(c.unlock())
}
