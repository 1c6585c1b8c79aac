package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// pursuit drives one keep.Waiter: first for a caller that waits, then, if it leaves an unknown outcome behind, in the background.
type pursuit struct {
	c       *Client
	cl      *claim
	waiter  keep.Waiter
	asked   bool   // a request was made,
	unsent  bool   // and withdrawn before it was sent
	doubt   bool   // an outcome is unknown
	first   letter // the first request
	newest  *letter
	acquire *letter // the newest that is no release
	copies  int     // of it, with the present secret, that were not refused
	mail    mail
	grant   *store.Answer // the last one without an error
	refusal error         // the last one with
	now     clock.Instant // when the machine was last stepped
}

// errPending is what a caller is told that leaves while its request is on its way.
var errPending = store.Unknown(errors.New("whether it was granted is not known yet; if it was, it is released in the background"))

// errUnsent is what it is told if that had not been sent.
var errUnsent = store.Unknown(errors.New("it was never sent, because the store has not answered what was sent before it; nothing was granted"))

// newPursuit makes ready to ask for what a contender claims. The caller holds the mutex of the lines.
func (c *Client) newPursuit(p *place, now clock.Instant) *pursuit {
	var after time.Duration
	if p.line.others {
		p.line.others, after = false, keep.Courtesy
	}
	patience := p.cl.o.WaitFor
	if patience != Forever {
		patience = max(patience-now.Sub(p.start), 0)
	}
	u := &pursuit{c: c, cl: p.cl, now: now}
	u.mail.rung = p.line.hint
	u.waiter = *keep.NewWaiter(keep.Patience{
		For: patience, After: after, Resolve: c.o.CallTimeout, Terms: p.cl.terms(),
		Call: 2*c.o.CallTimeout + patientFor, // waiting for hanging batches before it, and then on its way
	}, now, c.random)
	return u
}

// pursue asks for the key, from now on, until it is granted or the caller's patience ends. The caller is the head of its line.
func (c *Client) pursue(ctx context.Context, p *place, now clock.Instant) (*Lease, error) {
	key, u := p.cl.key(), c.lines.pursuit(p, now)
	if err := ended(ctx); err != nil && !u.asked {
		return nil, fmt.Errorf("acquire %q: %w", key, err)
	}
	wishes, why := u.inFront(ctx, p)
	if wishes.Background {
		c.fork(func() { u.behind(keep.Tick{}) })
	}
	switch {
	case wishes.Granted:
		return c.newLease(ctx, u.cl, u.grant, wishes.Deadline, u.now, u.now), nil
	case wishes.Unknown:
		return nil, fmt.Errorf("acquire %q: %w", key, wishes.Err)
	case why != nil && u.unsent && u.refusal == nil:
		return nil, fmt.Errorf("acquire %q: %w; %w", key, why, errUnsent)
	case why != nil && wishes.Background:
		return nil, fmt.Errorf("acquire %q: %w; %w", key, why, errPending)
	case why != nil && u.refusal != nil:
		return nil, fmt.Errorf("acquire %q: %w (%w)", key, why, u.refusal)
	case why != nil:
		return nil, fmt.Errorf("acquire %q: %w", key, why)
	}
	return nil, wishes.Err
}

// inFront steps the machine until the caller is free to go. why is set if the caller was called away.
func (u *pursuit) inFront(ctx context.Context, p *place) (wishes keep.Wishes, why error) {
	c := u.c
	watched := false
	var request *submission
	if !u.asked { // else the one before has done it
		wishes, request = u.step(keep.Tick{})
	}
	for {
		if wishes.Background && u.withdraw() {
			wishes.Background = false
			return wishes, why
		}
		switch {
		case request == nil:
		case wishes.Background: // the caller does not wait for it
			c.calls.submit(request)
		default:
			c.calls.carry(ctx, request)
		}
		if wishes.Watch {
			c.lines.startWatch(p)
		}
		if wishes.Done || wishes.Background {
			return wishes, why
		}
		l := u.mail.take() // there already, as a rule
		if l == nil {
			l = c.await(&u.mail, min(u.waiter.Wake().Sub(c.clk.Now()), time.Second), ctx.Done(), c.closing)
		}
		switch {
		case l != nil:
			u.read(l, p)
			wishes, request = u.next(l.open())
		case ctx.Err() != nil:
			why = ended(ctx)
			wishes, request = u.next(keep.Abandoned{Err: why})
		case isClosed(c.closing):
			why = ErrClosed
			wishes, request = u.next(keep.Abandoned{Err: why})
		default:
			wishes, request = u.next(c.lines.hinted(p, &watched))
		}
	}
}

// abandon lets go of what was asked on behalf of a caller that had just left.
func (u *pursuit) abandon() {
	if u.withdraw() {
		return
	}
	u.c.fork(func() { u.behind(keep.Abandoned{Err: context.Canceled}) })
}

// behind steps the machine until what the caller left is resolved.
func (u *pursuit) behind(event keep.Event) {
	for {
		wishes, request := u.next(event)
		if request != nil {
			u.c.calls.submit(request)
		}
		if wishes.Done {
			u.resolved(Outcome(wishes.Resolved))
			return
		}
		l := u.mail.take()
		if l == nil {
			l = u.c.await(&u.mail, min(u.waiter.Wake().Sub(u.c.clk.Now()), time.Second), nil, u.c.life.Done())
		}
		switch {
		case l != nil:
			event = l.open()
		case u.c.life.Err() != nil:
			u.resolved(OutcomeLeft)
			return
		default:
			event = keep.Tick{}
		}
	}
}

// next lets the machine decide now, and returns what it wants sent, or nil.
func (u *pursuit) next(event keep.Event) (keep.Wishes, *submission) {
	u.now = u.c.clk.Now()
	return u.step(event)
}

// step is next at the time that was looked at last.
func (u *pursuit) step(event keep.Event) (keep.Wishes, *submission) {
	wishes := u.waiter.Step(event, u.now)
	if wishes.Fresh {
		if u.asked { // with another secret, and copies of that request may still be on their way
			other := *u.cl
			u.cl = &other
		}
		u.cl.request[0].Secret = tenure.NewSecret()
	}
	request := u.cl.request[:]
	at, l := fresh, &u.first
	switch {
	case wishes.Ask && wishes.Again:
		at = again
	case wishes.Ask:
	case wishes.Release:
		at = again
		request = []tenure.Request{{Verb: tenure.Release, Key: request[0].Key, Secret: request[0].Secret, Failed: true}}
	default:
		return wishes, nil
	}
	if u.asked {
		if n := u.newest; !wishes.Fresh && n.requests[0].Verb == request[0].Verb && u.c.calls.waits(&n.submission) {
			n.attempt = wishes.Attempt // the same request, and it is not on its way yet
			return wishes, nil
		}
		l = new(letter)
	}
	u.asked, u.newest = true, l
	if wishes.Fresh {
		u.copies = 0
	}
	if wishes.Ask {
		u.acquire = l
		u.copies++
	}
	return wishes, l.address(&u.mail, request, at, wishes.Attempt)
}

// withdraw takes back what has not been sent, and reports whether nothing can come of what was asked: no other copy of it was sent, or all were refused.
func (u *pursuit) withdraw() bool {
	u.unsent = u.c.calls.withdraw(&u.acquire.submission) && u.copies == 1
	return u.unsent
}

// read takes note of an answer on its way to the machine.
func (u *pursuit) read(l *letter, p *place) {
	if l.answer.Err == nil {
		u.grant = l.answer
		if u.doubt {
			u.resolved(OutcomeOK)
		}
		return
	}
	if known(l.answer.Err) && l.requests[0].Secret == u.cl.request[0].Secret {
		u.copies--
	}
	var held *tenure.HeldError
	switch err := l.answer.Err; {
	case errors.As(err, &held):
		u.refusal = err
		u.c.lines.refused(p, held, u.c.clk.Now())
	case !known(err):
		u.doubt = true
		u.c.emit(Event{Kind: EventUnknown, Key: u.cl.key(), Verb: tenure.Acquire, Err: err})
	}
}

// resolved tells what an unknown outcome has come to.
func (u *pursuit) resolved(o Outcome) {
	u.doubt = false
	u.c.emit(Event{Kind: EventResolved, Key: u.cl.key(), Verb: tenure.Acquire, Outcome: o})
}
