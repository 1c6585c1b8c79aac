package croft

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/tenure"
)

// Lease is one term of a key, held by this process and renewed by its client until it ends. It is safe for concurrent use.
type Lease struct {
	c *Client

	// Under the client's mutex.
	l      *engine.Lease
	lost   *LostError
	ctx    context.Context         // its own, once somebody has wanted it; before, the one it was acquired with
	cancel context.CancelCauseFunc // of its own; nil before
}

// leaseOf is the lease that a call was granted.
func (c *Client) leaseOf(ctx context.Context, p *pending) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := p.Reply.Lease
	if made, is := l.Tag.(*Lease); is { // it was made to raise the fence
		return made
	}
	made := &Lease{c: c, l: l, ctx: ctx}
	l.Tag = made
	return made
}

// Key is what the lease is on.
func (l *Lease) Key() string { return l.l.Key }

// Token orders the owners of the key: every later grant has a higher one.
func (l *Lease) Token() fence.Token { return l.l.Token }

// Stamp is what every write under the lease carries. It holds no secret.
func (l *Lease) Stamp() fence.Stamp { return l.l.Stamp() }

// Deed lets another process act on the lease. It holds the secret.
func (l *Lease) Deed() tenure.Deed { return l.l.Deed }

// Record is the newest record of the lease that the store has confirmed. What it refers to must not be changed.
func (l *Lease) Record() tenure.Record {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.l.Record
}

// Context carries the values of the context the lease was acquired with. It ends when the lease does, at the latest Notice before the local deadline, also
// while a call of the store hangs, and within a second of waking from suspend; context.Cause then gives a [*LostError].
func (l *Lease) Context() context.Context {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.cancel == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.ctx))
		if lost := l.loss(); lost != nil {
			l.cancel(lost)
		}
	}
	return l.ctx
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err is nil while the lease lives, and then a [*LostError]. It looks at the clock: after a suspend it is right at once.
func (l *Lease) Err() error {
	now := l.c.lock()
	if l.l.Alive(now) {
		l.c.mu.Unlock()
		return nil
	}
	l.c.engine.Check(now, l.l)
	l.c.do(l.c.unlock())
	if lost := l.end(); lost != nil {
		return lost
	}
	return nil
}

// end ends the context of a lease that was lost, if somebody has wanted it, and
// returns the loss.
func (l *Lease) end() *LostError {
	l.c.mu.Lock()
	lost, cancel := l.loss(), l.cancel
	l.c.mu.Unlock()
	if cancel != nil {
		cancel(lost)
	}
	return lost
}

// loss is why the lease is over, or nil: always the same error. The caller holds
// the mutex.
func (l *Lease) loss() *LostError {
	if l.lost == nil && l.l.Lost != nil {
		l.lost = l.lostBy(l.l.Lost)
	}
	return l.lost
}

// lostBy makes an error of a loss.
func (l *Lease) lostBy(lost *engine.Lost) *LostError {
	return &LostError{Key: l.l.Key, Token: l.l.Token, Loss: Loss(lost.Loss), Err: lost.Err}
}

// over ends the context of a lease that was lost.
func (c *Client) over(l *engine.Lease) {
	c.mu.Lock()
	made, is := l.Tag.(*Lease)
	c.mu.Unlock()
	if is {
		_ = made.end()
	}
	if l.Lost.Err != nil {
		c.notOwned(tenure.Renew, l.Stamp(), c.o.Owner, l.Lost.Err)
	}
}

// Remaining is the time until the local deadline, on a clock that runs during suspend. It may be more than zero when the context has already ended (by
// Notice, MaxHold, MaxFailures or Close): until then the store keeps the key from others, which is the time there is to stop the work. It is zero or less
// when the deadline has passed, and when the key is known to be no longer the lease's.
func (l *Lease) Remaining() time.Duration {
	now := l.c.lock()
	defer l.c.mu.Unlock()
	left := l.l.Deadline().Sub(now)
	if lost := l.loss(); lost != nil && (lost.Loss == Released || errors.Is(lost.Err, ErrNotOwned)) {
		left = min(left, 0)
	}
	return left
}

// Report tells that the work has got somewhere, and the store how far: with StallAfter set, the lease is renewed only as long as Report is called. The
// marker is for people to read. Its error matches ErrLost if the lease is over; when the store cannot be reached it matches ErrUnknown, and the
// progress counts all the same.
func (l *Lease) Report(ctx context.Context, marker string) error {
	if err := l.Err(); err != nil {
		return err
	}
	req := tenure.Request{Verb: tenure.Report, Key: l.Key(), Secret: l.l.Secret, Progress: marker}
	if err := req.Check(); err != nil {
		return err
	}
	if ctx.Err() != nil { // the store is not told, but the progress counts
		now := l.c.lock()
		l.c.engine.Progressed(now, l.l)
		l.c.do(l.c.unlock())
	}
	return l.act(ctx, &pending{Call: engine.Call{Request: req, Lease: l.l}}, 2*l.c.o.CallTimeout)
}

// act makes a call that is about the lease.
func (l *Lease) act(ctx context.Context, p *pending, bound time.Duration) error {
	if err := l.c.try(ctx, p, bound); err != nil {
		return err
	}
	lost := p.Reply.Lost
	if lost == nil {
		return p.Reply.Err
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if lost == l.l.Lost {
		return l.loss() // always the same error
	}
	return l.lostBy(lost)
}

// Resume takes up a lease that was lost by time (expired or unreachable), if nobody was granted the key meanwhile: it returns a new lease with the same
// token, whose writes count like those of the old one. After any other loss its error is that loss, after Release or Fail, whatever came of it, one as
// [Released], and of a lease that still lives it is ErrInvalid.
func (l *Lease) Resume(ctx context.Context) (*Lease, error) {
	var lost *LostError
	switch err := l.Err(); {
	case err == nil:
		return nil, errAlive
	case errors.As(err, &lost) && lost.Loss != Expired && lost.Loss != Unreachable:
		return nil, err
	}
	l.c.mu.Lock()
	given := l.l.Given
	l.c.mu.Unlock()
	if given {
		return nil, &LostError{Key: l.Key(), Token: l.Token(), Loss: Released, Err: errGave}
	}
	req := tenure.Request{Verb: tenure.Renew, Key: l.Key(), Secret: l.l.Secret, Resume: true}
	p := &pending{Call: engine.Call{Request: req, Lease: l.l}}
	if err := l.act(ctx, p, 2*l.c.o.CallTimeout); err != nil {
		return nil, err
	}
	return l.c.leaseOf(ctx, p), nil
}
