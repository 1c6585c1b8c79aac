package mcp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
)

// write lets a call in, sends it on, and waits for its answer. The context ends
// when the client has cancelled the call.
func (s *session) write(ctx context.Context, c *call) {
	answer, err := s.admit(ctx, c)
	var reply object
	if err != nil {
		reply = refused(c.message, s.gate.Refused(c.write, err))
	} else {
		reply = s.shown(c.method, answer).body
	}
	s.mu.Lock()
	delete(s.calls, c.id)
	delete(s.writeIDs, string(encode(c.writeID)))
	unwanted := c.gone
	s.mu.Unlock()
	if !unwanted {
		s.outbox.put(reply)
	}
}

// admit takes a call through the gate. When it returns, the resource is free
// for others, whether or not the client takes the answer.
func (s *session) admit(ctx context.Context, c *call) (message, error) {
	pass := sync.OnceFunc(func() { go s.passTurn(c) })
	defer pass()
	if c.invalid != nil {
		return message{}, c.invalid
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Wait)
	defer cancel()
	if c.after != nil {
		select {
		case <-c.after:
		case <-ctx.Done():
			return message{}, &admission.Refusal{
				Code: "held", Err: context.Cause(ctx),
				Say: "an earlier write to this resource did not end in time; nothing was sent, try again",
			}
		}
	}
	return s.letIn(ctx, c.write, c.message, func(p *admission.Passage) (message, error) {
		pass()
		s.enter(p)
		defer s.exit(p)
		return s.exchange(c, p)
	})
}

// enter notes that a write is inside, and bounds how long the upstream may run:
// it must not outlive the lease under which it writes.
func (s *session) enter(p *admission.Passage) {
	s.mu.Lock()
	s.inside[p] = true
	s.mu.Unlock()
	s.limit()
}

func (s *session) exit(p *admission.Passage) {
	s.mu.Lock()
	delete(s.inside, p)
	s.mu.Unlock()
	s.limit()
}

// limit says how long the upstream may run: while writes are inside, as long as
// the leases of all of them last.
func (s *session) limit() {
	if s.up.AllowFor == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := time.Duration(math.MaxInt64 / 2)
	for p := range s.inside {
		if p.Lease != nil {
			left = min(left, p.Lease.Remaining())
		}
	}
	_ = s.up.AllowFor(left) // an upstream that is gone needs no bound
}

// keepLimit moves the limit as the leases are renewed, until the upstream is
// gone.
func (s *session) keepLimit() {
	tick := time.NewTicker(s.gate.Options.TTL / 8)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			busy := len(s.inside) > 0
			s.mu.Unlock()
			if busy {
				s.limit()
			}
		case <-s.down:
			return
		}
	}
}

// These are reasons for doubt.
var (
	errNoAnswer  = errors.New("the upstream did not answer in time")
	errCancelled = errors.New("the client has cancelled it, and the upstream did not say how it ended")
	errGone      = errors.New("the upstream has ended")
)

// cancelledWithin is how long the upstream may take to say how a cancelled
// write has ended. Tests wait for less.
var cancelledWithin = 10 * time.Second

// exchange sends a call on and waits for its answer. It ends the passage.
func (s *session) exchange(c *call, p *admission.Passage) (message, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(p.Context(), s.o.AnswerWithin, errNoAnswer)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		sent <- s.toUpstream.send(c.body.with("id", c.writeID), func() error { return s.mayStillSend(c, p) })
	}()
	left := c.left
	unsent := func(err error) (message, error) {
		p.NotSent()
		return message{}, &admission.Refusal{
			Code: "unknown", Err: err,
			Say: "the proxy could not send the call in time; nothing was sent, try again",
		}
	}
	for {
		var why error
		select {
		case m := <-c.answer:
			if isTask(m.result()) && !s.o.Tasks {
				why = errBecameTask
				break
			}
			p.Answered()
			s.gate.Emit(gate.Event{
				Kind: gate.Answered, Resource: p.Write.Resource, Method: p.Write.What, Key: p.Write.Stamp.Key,
				Token: p.Write.Stamp.Token, Took: time.Since(start),
			})
			return m, nil
		case err := <-sent:
			var not *notSentError
			if errors.As(err, &not) {
				return unsent(err)
			}
			continue // if it could not be written, the upstream is about to be gone
		case <-left:
			left = nil
			time.AfterFunc(cancelledWithin, cancel)
			continue
		case <-ctx.Done():
			if why = context.Cause(ctx); c.wasLeft() && errors.Is(why, context.Canceled) {
				why = errCancelled
			}
		case <-s.down:
			select {
			case m := <-c.answer: // its last words
				c.answer <- m
				continue
			default:
			}
			why = errGone
		}
		if s.takeBack(c) {
			return unsent(why)
		}
		return message{}, s.leaveInDoubt(c, p, why)
	}
}

// takeBack makes sure that a write is never sent, and reports whether it could:
// the write may wait for a server that does not read.
func (s *session) takeBack(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.back = true
	return !c.sent
}

// mayStillSend is asked just before a write is sent, with nothing in between.
func (s *session) mayStillSend(c *call, p *admission.Passage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone || c.back {
		return errCancelled
	}
	if err := p.Alive(); err != nil {
		return err
	}
	c.sent = true
	return nil
}

func (c *call) wasLeft() bool {
	select {
	case <-c.left:
		return true
	default:
		return false
	}
}

// leaveInDoubt ends the passage of a write that may or may not take effect. The
// upstream is killed before the resource closes, so that nothing of it is still
// at work when the resource opens.
func (s *session) leaveInDoubt(c *call, p *admission.Passage, why error) error {
	s.gate.Emit(gate.Event{
		Kind: gate.InDoubt, Resource: p.Write.Resource, Method: p.Write.What, Key: p.Write.Stamp.Key,
		Token: p.Write.Stamp.Token, Err: why,
	})
	s.mu.Lock()
	if s.doubt == nil {
		s.doubt = fmt.Errorf("a call of %q is in doubt, and the upstream was killed: %w", c.params.text("name"), why)
	}
	s.mu.Unlock()
	s.killUpstream()
	p.InDoubt(why.Error())
	return &admission.Refusal{
		Code: "unknown", Sent: true, Err: why,
		Say: "the call was sent to the server, and it is not known whether it took effect, or still will; " +
			"the server was stopped",
	}
}
