package croft

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Lease is one term of a key, held by this process and renewed by its client until it ends. It is safe for concurrent use.
type Lease struct {
	c     *Client
	cl    *claim
	deed  tenure.Deed
	since clock.Instant // when the key was granted, be it to the lease this one resumes

	// Under the warden's mutex.
	ctx    context.Context         // its own, once somebody has wanted it; before, the one it was acquired with
	cancel context.CancelCauseFunc // of its own; nil before
	keeper keep.Keeper
	index  int // in the warden's heap; -1 when not there
	rec    tenure.Record
	recAt  time.Time // on the store's clock
	lost   *LostError
	alone  bool // the next renewal goes in a call of its own
	gave   bool // the store was asked to take it back, or will be
	giving bool // somebody is in Release,
	// finished says that the store knows that the lease is over, and outcome is of the Release that ended it: both are for who is in Release.
	finished bool
	outcome  error
	given    chan struct{} // closed when nobody is in Release; nil if nobody waits for that
}

// newLease begins to keep what was granted to a claim, good until deadline.
func (c *Client) newLease(ctx context.Context, cl *claim, granted *store.Answer, deadline, since, now clock.Instant) *Lease {
	l := &Lease{
		c: c, cl: cl, since: since, ctx: ctx, index: -1, rec: granted.Record, recAt: granted.Now,
		deed:   tenure.Deed{Key: cl.key(), Token: granted.Record.Token, Secret: cl.request[0].Secret, TTL: cl.o.TTL},
		keeper: keep.NewKeeper(cl.terms(), deadline, since, now, granted.Record, c.random()),
	}
	c.warden.add(l, now)
	return l
}

// Key is what the lease is on.
func (l *Lease) Key() string { return l.deed.Key }

// Token orders the owners of the key: every later grant has a higher one.
func (l *Lease) Token() fence.Token { return l.deed.Token }

// Stamp is what every write under the lease carries. It holds no secret.
func (l *Lease) Stamp() fence.Stamp { return l.deed.Stamp() }

// Deed lets another process act on the lease. It holds the secret.
func (l *Lease) Deed() tenure.Deed { return l.deed }

// Record is the newest record of the lease that the store has confirmed. What it refers to must not be changed.
func (l *Lease) Record() tenure.Record {
	l.c.warden.mu.Lock()
	defer l.c.warden.mu.Unlock()
	return l.rec
}

// Context carries the values of the context the lease was acquired with. It ends when the lease does, at the latest Notice before the local deadline, also
// while a call of the store hangs, and within a second of waking from suspend; context.Cause then gives a [*LostError].
func (l *Lease) Context() context.Context {
	l.c.warden.mu.Lock()
	defer l.c.warden.mu.Unlock()
	if l.cancel == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.ctx))
		if l.lost != nil {
			l.cancel(l.lost)
		}
	}
	return l.ctx
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err is nil while the lease lives, and then a [*LostError]. It looks at the clock: after a suspend it is right at once.
func (l *Lease) Err() error {
	if lost := l.c.warden.check(l); lost != nil {
		return lost
	}
	return nil
}

// end ends the context of a lease that was lost, if there is one, and returns the loss.
func (l *Lease) end() *LostError {
	l.c.warden.mu.Lock()
	lost, cancel := l.lost, l.cancel
	l.c.warden.mu.Unlock()
	if lost != nil && cancel != nil {
		cancel(lost)
	}
	return lost
}

// Remaining is the time until the local deadline, on a clock that runs during suspend. It may be more than zero when the context has already ended (by
// Notice, MaxHold, MaxFailures or Close): until then the store keeps the key from others, which is the time there is to stop the work. It is zero or less
// when the deadline has passed, and when the key is known to be no longer the lease's.
func (l *Lease) Remaining() time.Duration {
	w := l.c.warden
	w.mu.Lock()
	defer w.mu.Unlock()
	left := l.keeper.Deadline().Sub(l.c.clk.Now())
	if l.lost != nil && (l.lost.Loss == Released || errors.Is(l.lost.Err, ErrNotOwned)) {
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
	if err := l.c.enter(); err != nil {
		return err
	}
	defer l.c.leave()
	l.c.warden.step(l, keep.Progressed{})
	l.c.emit(Event{Kind: EventReported, Key: l.Key(), Token: l.Token()})
	req := tenure.Request{Verb: tenure.Report, Key: l.Key(), Secret: l.deed.Secret, Progress: marker}
	if err := req.Check(); err != nil {
		return err
	}
	r, err := l.c.ask(ctx, req, 2*l.c.o.CallTimeout, nil)
	switch {
	case err == nil:
		l.c.warden.confirm(l, r.answer)
	case errors.Is(err, tenure.ErrNotOwned):
		l.c.warden.step(l, keep.Answered{Sent: r.sent, Answer: r.answer})
		return l.Err()
	}
	return err
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
	if l.givenBack() {
		return nil, &LostError{Key: l.Key(), Token: l.Token(), Loss: Released, Err: errGave}
	}
	c := l.c
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	req := tenure.Request{Verb: tenure.Renew, Key: l.Key(), Secret: l.deed.Secret, Resume: true}
	r, err := c.ask(ctx, req, 2*c.o.CallTimeout, nil)
	if err != nil {
		return nil, l.asLost(err)
	}
	if r.answer.Record.Token != l.Token() {
		_ = l.Fail(ctx)
		return nil, &LostError{Key: l.Key(), Token: l.Token(), Loss: Superseded, Err: errGrantedAnew}
	}
	resumed := c.newLease(ctx, l.cl, &r.answer, l.cl.terms().Until(r.first, r.sent, r.answer), l.since, c.clk.Now())
	if err := resumed.Err(); err != nil { // MaxHold has passed, or the answer took too long, or the client was closed
		_ = resumed.Fail(ctx)
		return nil, err
	}
	c.lines.reoccupy(resumed)
	c.emit(Event{Kind: EventResumed, Key: l.Key(), Token: l.Token(), TTL: l.deed.TTL})
	return resumed, nil
}

// asLost makes a loss of the store's "not owned"; other errors stay as they are.
func (l *Lease) asLost(err error) error {
	if err == nil {
		return nil
	}
	var refusal *tenure.NotOwnedError
	if !errors.As(err, &refusal) {
		return err
	}
	return &LostError{Key: l.Key(), Token: l.Token(), Loss: Loss(keep.LossOf(refusal)), Err: err}
}

// asHeld is the lease as another contender for its key sees it, or nil if it is over.
func (l *Lease) asHeld() *tenure.HeldError {
	w := l.c.warden
	w.mu.Lock()
	defer w.mu.Unlock()
	now := l.c.clk.Now()
	if l.lost != nil || now >= l.keeper.Ends() { // nobody need have noticed yet
		return nil
	}
	left := l.keeper.Deadline().Sub(now) + l.cl.terms().Margin()
	return &tenure.HeldError{Record: l.rec, Why: tenure.WhyHeld, Until: l.rec.Deadline, Now: l.rec.Deadline.Add(-left)}
}
