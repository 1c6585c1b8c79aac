package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/tenure"
)

// claim is what one Acquire asks for, with every default filled in.
type claim struct {
	o       LeaseOptions
	request [1]tenure.Request // its secret is made when it is sent; from then on it does not change
}

func (cl *claim) key() string { return cl.request[0].Key }

// terms are what the lease is to be kept by.
func (cl *claim) terms() keep.Terms {
	return keep.Terms{TTL: cl.o.TTL, StallAfter: cl.o.StallAfter, MaxHold: cl.o.MaxHold, Notice: cl.o.Notice, MaxFailures: cl.o.MaxFailures}
}

// Acquire takes the lease on a key, waiting at most WaitFor while another holds it. On return the fence is up at every guard named. Its error
// matches ErrHeld when it is not the caller's turn, ErrUnknown when the store could not be reached, is a [*GuardError] when a
// fence could not be raised, or says what is wrong with the input; the end of ctx is never hidden. Contenders for one key within a client are served in
// the order in which they came.
func (c *Client) Acquire(ctx context.Context, key string, o *LeaseOptions) (*Lease, error) {
	cl, err := c.newClaim(key, o)
	if err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()

	start := c.clk.Now()
	l, err := c.acquire(ctx, cl, start)
	if c.calls.observe == nil {
		return l, err
	}
	wait := c.clk.Now().Sub(start)
	switch {
	case err == nil:
		rec := l.Record()
		c.emit(Event{Kind: EventAcquired, Key: key, Token: rec.Token, Cause: rec.Cause, TTL: cl.o.TTL, Wait: wait})
	case errors.Is(err, tenure.ErrHeld):
		c.emit(Event{Kind: EventRefused, Key: key, Wait: wait, Err: err})
	}
	return l, err
}

func (c *Client) acquire(ctx context.Context, cl *claim, start clock.Instant) (*Lease, error) {
	p, turn := c.lines.join(cl, start)
	defer c.lines.stepAside(p)
	now := start
	if !turn {
		if err := c.lines.stand(ctx, p); err != nil {
			return nil, err
		}
		now = c.clk.Now()
	}
	for recovered := false; ; recovered = true {
		l, err := c.pursue(ctx, p, now)
		if err != nil {
			return nil, err
		}
		if len(cl.o.Guards) > 0 {
			c.lines.granted(p, l)
		}
		above, err := c.raiseAtGrant(ctx, l)
		if err == nil {
			c.lines.occupy(p, l)
			return l, nil
		}
		_ = l.Fail(context.WithoutCancel(ctx)) // an event tells if it could not be released: then it lapses
		if above == 0 || recovered {
			return nil, err
		}
		higher := *cl
		higher.request[0].Above = above
		p.cl, now = &higher, c.clk.Now()
	}
}

// anySecret stands in for one when the rest of a request is checked.
var anySecret = tenure.NewSecret()

// newClaim fills in the defaults and checks the input.
func (c *Client) newClaim(key string, o *LeaseOptions) (*claim, error) {
	cl := &claim{}
	if o != nil {
		cl.o = *o
	}
	if cl.o.TTL == 0 {
		cl.o.TTL = time.Minute
	}
	if cl.o.MaxFailures == 0 {
		cl.o.MaxFailures = 3
	}
	req := &cl.request[0]
	*req = tenure.Request{
		Verb: tenure.Acquire, Key: key, Owner: c.o.Owner, Instance: c.o.Instance,
		TTL: cl.o.TTL, Above: cl.o.Above, Every: cl.o.Every, HoldFor: cl.o.HoldFor,
	}
	for i, g := range cl.o.Guards {
		if g == nil {
			return nil, fmt.Errorf("%w guard: number %d is nil", ErrInvalid, i+1)
		}
		req.Guards = append(req.Guards, g.Target())
	}
	probe := *req
	probe.Secret = anySecret
	if err := probe.Check(); err != nil {
		return nil, err
	}
	if err := fence.CheckAhead(cl.o.Above, time.Now()); err != nil { // no guard would admit what follows
		return nil, fmt.Errorf("above: %w", err)
	}
	if err := checkReserved(key); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name string
		d    time.Duration
		most time.Duration
	}{
		{"WaitFor", cl.o.WaitFor, Forever},
		{"StallAfter", cl.o.StallAfter, Forever},
		{"MaxHold", cl.o.MaxHold, Forever},
		{"Notice", cl.o.Notice, cl.o.TTL / 2},
	} {
		if d.d < 0 || d.d > d.most {
			return nil, fmt.Errorf("%w %s %s: it must be between 0 and %s", ErrInvalid, d.name, d.d, d.most)
		}
	}
	if cl.o.MaxFailures < 0 {
		return nil, fmt.Errorf("%w MaxFailures %d: it must be 1 or more, or 0 for the default of 3", ErrInvalid, cl.o.MaxFailures)
	}
	return cl, nil
}

// raiseAtGrant raises the fence at the guards that a new lease names. If one
// refuses the lease's token as not new enough, above is the token that the next
// request must exceed: the store has forgotten what the guard remembers, or
// somebody made it up. A token so high that guards refuse the next one is not
// followed: it would use up the tokens of the key.
func (c *Client) raiseAtGrant(ctx context.Context, l *Lease) (above fence.Token, err error) {
	if len(l.cl.o.Guards) == 0 {
		return 0, nil
	}
	ctx, stop := l.within(ctx)
	defer stop()
	for _, r := range c.raise(ctx, l.Stamp(), l.cl.o.Guards) {
		var stale *fence.StaleError
		var refused *fence.RefusedError
		switch {
		case r.Err == nil:
			continue
		case errors.As(r.Err, &stale) && fence.CanFollow(stale.Newest.Token, time.Now()):
			above = max(above, stale.Newest.Token)
		case errors.As(r.Err, &refused) && errors.Is(r.Err, fence.ErrCollision):
			above = max(above, refused.Mark.Token)
		default: // another token would not help here
			return 0, &GuardError{Target: r.Target, Err: r.Err}
		}
		if err == nil {
			err = &GuardError{Target: r.Target, Err: r.Err}
		}
	}
	return above, err
}
