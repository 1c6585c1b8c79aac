package croft

import (
	"context"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// Acquire takes the lease on a key, waiting at most WaitFor while another holds it. On return the fence is up at every guard named. Its error
// matches ErrHeld when it is not the caller's turn, ErrUnknown when the store could not be reached, is a [*GuardError] when a
// fence could not be raised, or says what is wrong with the input; the end of ctx is never hidden. Contenders for one key within a client are served in
// the order in which they came.
func (c *Client) Acquire(ctx context.Context, key string, o *LeaseOptions) (*Lease, error) {
	p, err := c.newAcquire(key, o)
	if err != nil {
		return nil, err
	}
	if err := ended(ctx); err != nil {
		return nil, fmt.Errorf("acquire %q: %w", key, err)
	}
	c.run(ctx, p)
	if p.Reply.Err != nil {
		return nil, p.Reply.Err
	}
	return c.leaseOf(ctx, p), nil
}

// anySecret stands in for one when the rest of a request is checked.
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
	if err := fence.CheckAhead(o.Above, time.Now()); err != nil { // no guard would admit what follows
		return nil, fmt.Errorf("above: %w", err)
	}
	if err := refusals.CheckKey(key); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name string
		d    time.Duration
		most time.Duration
	}{
		{"WaitFor", o.WaitFor, Forever},
		{"StallAfter", o.StallAfter, Forever},
		{"MaxHold", o.MaxHold, Forever},
		{"Notice", o.Notice, o.TTL / 2},
	} {
		if d.d < 0 || d.d > d.most {
			return nil, fmt.Errorf("%w %s %s: it must be between 0 and %s", ErrInvalid, d.name, d.d, d.most)
		}
	}
	if o.MaxFailures < 0 {
		return nil, fmt.Errorf("%w MaxFailures %d: it must be 1 or more, or 0 for the default of 3", ErrInvalid, o.MaxFailures)
	}
	return &pending{guards: o.Guards, Call: engine.Call{
		Request: req, WaitFor: o.WaitFor, Guarded: len(o.Guards) > 0,
		Terms: keep.Terms{
			TTL: o.TTL, StallAfter: o.StallAfter, MaxHold: o.MaxHold, Notice: o.Notice, MaxFailures: o.MaxFailures,
		},
	}}, nil
}

// raiseFor raises the fence for an acquire that was granted, and tells the
// engine.
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
