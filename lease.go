package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/tenure"
)

// Lease is one term of a key. This process holds it, and its client renews it
// until it ends. It is safe for concurrent use.
type Lease struct {
	c *Client

	// The client's mutex protects these.
	l    *engine.Lease
	lost *LostError
	// Before Context is first called: the context of the acquire. Then: its
	// own.
	ctx    context.Context
	cancel context.CancelCauseFunc // ends its own context; nil before there is one

	checkpoint string // as it was when this lease began
}

// leaseOf returns the lease that a call was granted. It makes only one Lease
// per grant.
func (c *Client) leaseOf(ctx context.Context, p *pending) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := p.Reply.Lease
	if made, is := l.Tag.(*Lease); is {
		return made
	}
	made := &Lease{c: c, l: l, ctx: ctx, checkpoint: l.Record.Checkpoint}
	l.Tag = made
	return made
}

// Key returns the key that the lease is on.
func (l *Lease) Key() string { return l.l.Key }

// Token returns the lease's token. Tokens order the owners of a key: every
// later grant has a higher one.
func (l *Lease) Token() fence.Token { return l.l.Token }

// Stamp returns the stamp that every write under the lease carries. It holds no
// secret.
func (l *Lease) Stamp() fence.Stamp { return l.l.Stamp() }

// Deed returns the lease's deed, with which another process can act on the
// lease, or take it up by [Client.Adopt]. It holds the secret.
func (l *Lease) Deed() Deed {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	d := l.l.Deed
	d.TTL = l.l.Policy().TTL
	return d
}

// Record returns the newest record of the lease that the store has confirmed.
// Do not change its slices.
func (l *Lease) Record() tenure.Record {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.l.Record
}

// Context returns a context that ends when the lease does. Then [context.Cause]
// gives a [*LostError]. The context carries the values of the context with
// which the lease was acquired.
//
// The context ends at the latest Notice before the local deadline, also while a
// call of the store hangs. After the machine was suspended it ends within a
// second of waking. It does not end with the context of the acquire.
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

// Done returns a channel that is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease lives, and then a [*LostError]. It reads the
// clock, so that it is right immediately after a suspend.
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

// end ends the lease's own context, if it has one and the lease is lost. It
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

// loss returns why the lease is over, or nil. It always returns the same error.
// The caller holds the mutex.
func (l *Lease) loss() *LostError {
	if l.lost == nil && l.l.Lost != nil {
		l.lost = l.lostBy(l.l.Lost)
	}
	return l.lost
}

// lostBy makes a LostError of the engine's loss.
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

// Remaining returns the time until the local deadline, by a clock that runs on
// during suspend. Until then the store keeps the key from others. It can be
// more than zero after the context has ended (by Notice, MaxHold, MaxFailures
// or Close). That is the time left to stop the work.
//
// It is zero or less once the deadline has passed, or once the lease is known
// not to own the key any more.
func (l *Lease) Remaining() time.Duration {
	now := l.c.lock()
	defer l.c.mu.Unlock()
	left := l.l.Deadline().Sub(now)
	if lost := l.loss(); lost != nil && (lost.Loss == Released || errors.Is(lost.Err, ErrNotOwned)) {
		left = min(left, 0)
	}
	return left
}

// Report tells the client and the store that the work has made progress. With
// StallAfter, the lease is only renewed as long as the work reports. The marker
// is a text for people to read.
//
// The error matches [ErrLost] if the lease is over. It matches [ErrUnknown] if
// the store did not answer; the progress counts nevertheless.
func (l *Lease) Report(ctx context.Context, marker string) error {
	return l.advanced(ctx, tenure.Request{Verb: tenure.Report, Progress: marker})
}

// Save saves a checkpoint: bytes for the next holder of the key, such as a
// cursor. The next holder gets them from [Lease.Checkpoint]. They replace the
// checkpoint before. There may be [tenure.MaxCheckpoint] of them, and an empty
// checkpoint clears it. Everybody who can read the store can read them.
//
// The store keeps the checkpoint as long as the key's record, however this
// lease ends. It drops the record once the key has not been used for the
// store's retention, by default a day. State that must last longer belongs in
// the data itself.
//
// A checkpoint counts as progress, like [Lease.Report]. The error matches
// [ErrInvalid] if it is too large; then it was not saved. It matches [ErrLost]
// if the lease is over; then it counts only if it had arrived before that. It
// matches [ErrUnknown] if the store did not answer. Then it may arrive later,
// or never, and may replace a newer checkpoint of this lease. Nothing that
// arrives after the next grant counts.
func (l *Lease) Save(ctx context.Context, checkpoint []byte) error {
	return l.advanced(ctx, tenure.Request{Verb: tenure.Checkpoint, Checkpoint: string(checkpoint)})
}

// Checkpoint returns the bytes that were saved last when this lease began: by
// an earlier holder, or by this one before [Lease.Resume] or [Client.Adopt]. It
// is empty if none were saved, or if the store has dropped the key's record.
func (l *Lease) Checkpoint() []byte { return []byte(l.checkpoint) }

// advanced tells the client and the store that the work has made progress.
func (l *Lease) advanced(ctx context.Context, req tenure.Request) error {
	if err := l.Err(); err != nil {
		return err
	}
	req.Key, req.Secret = l.Key(), l.l.Secret
	if err := req.Check(); err != nil {
		return err
	}
	// The store is not told, but the progress counts.
	if ctx.Err() != nil {
		now := l.c.lock()
		l.c.engine.Progressed(now, l.l)
		l.c.do(l.c.unlock())
	}
	return l.act(ctx, &pending{Call: engine.Call{Request: req, Lease: l.l}}, 2*l.c.o.CallTimeout)
}

// SetTTL renews the lease with another TTL, and every later renewal keeps it.
// When SetTTL returns nil, the store has it.
//
// A longer TTL moves the deadline at once. A shorter one does not bring the
// deadline nearer: after a crash, others wait for the old deadline until its
// time has passed. From now on the lease is renewed in time for the new TTL.
// MaxHold, StallAfter and Notice stay; Notice may be at most half of the TTL.
//
// Another process that has the deed may change the TTL, too: see
// [Client.SetTTL]. The error matches [ErrInvalid] if the TTL is bad, and
// [ErrLost] if the lease is over. It matches [ErrUnknown] if the store did not
// answer. Then the next renewal shows which TTL counts, and SetTTL may be
// called again.
func (l *Lease) SetTTL(ctx context.Context, ttl time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	req, err := retime(l.Key(), l.l.Secret, ttl)
	if err != nil {
		return err
	}
	l.c.mu.Lock()
	policy := l.l.Policy()
	l.c.mu.Unlock()
	if !policy.Fits(ttl) {
		return fmt.Errorf("%w TTL %s: Notice is %s, so the TTL must be at least %s",
			ErrInvalid, ttl, policy.Notice, 2*policy.Notice)
	}
	return l.act(ctx, &pending{Call: engine.Call{Request: req, Lease: l.l}}, 2*l.c.o.CallTimeout)
}

// retime makes the request for a new TTL, and checks it.
func retime(key string, secret tenure.Secret, ttl time.Duration) (tenure.Request, error) {
	req := tenure.Request{Verb: tenure.Renew, Key: key, Secret: secret, TTL: ttl}
	if ttl == 0 { // the law would keep the old one
		return req, fmt.Errorf("%w TTL 0: it must be between %s and %s", ErrInvalid, tenure.MinTTL, tenure.MaxTTL)
	}
	return req, req.Check()
}

// act makes a call about the lease.
func (l *Lease) act(ctx context.Context, p *pending, bound time.Duration) error {
	if err := l.c.try(ctx, p, bound); err != nil {
		return err
	}
	return l.failure(p.Reply.Lost, p.Reply.Err)
}

// failure returns the error that tells a loss, or err if there was none.
func (l *Lease) failure(lost *engine.Lost, err error) error {
	if lost == nil {
		return err
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if lost == l.l.Lost {
		return l.loss() // always the same error
	}
	return l.lostBy(lost)
}

// Resume takes up a lease that was lost by time ([Expired] or [Unreachable]),
// if nobody was granted the key meanwhile. It returns a new lease with the same
// token. Its writes count like those of the old one.
//
// After any other loss, Resume returns that loss. After Release or Fail, even
// without a known outcome, it returns a [*LostError] with [Released]. If the
// lease still lives, the error matches [ErrInvalid]. If the store did not
// answer, it matches [ErrUnknown].
func (l *Lease) Resume(ctx context.Context) (*Lease, error) {
	_ = l.Err() // its time may just have run out
	l.c.mu.Lock()
	lost, err := l.l.Resumable()
	l.c.mu.Unlock()
	if lost != nil || err != nil {
		return nil, l.failure(lost, err)
	}
	req := tenure.Request{Verb: tenure.Renew, Key: l.Key(), Secret: l.l.Secret, Resume: true}
	p := &pending{Call: engine.Call{Request: req, Lease: l.l}}
	if err := l.act(ctx, p, 2*l.c.o.CallTimeout); err != nil {
		return nil, err
	}
	return l.c.leaseOf(ctx, p), nil
}
