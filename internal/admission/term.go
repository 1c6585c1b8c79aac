package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/tenure"
)

// This file has what a gate does with its lease and with a closed resource. The
// package comment explains what the terms of a lease tell the next gate.

// ClosedMark begins the progress marker of a closed term.
const ClosedMark = "closed"

// ready makes sure that this gate has the resource and that it is open.
func (s *resourceState) ready(ctx context.Context) error {
	for {
		if err := s.hold(ctx); err != nil {
			return err
		}
		if s.doubt == nil {
			return nil
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
}

// hold takes the lease unless the gate has it.
func (s *resourceState) hold(ctx context.Context) error {
	client := s.g.Options.Client
	if client == nil || s.lease != nil && s.lease.Err() == nil {
		return nil
	}
	// If the client leaves, go on: otherwise a term could be left behind that
	// nobody uses.
	ctx = context.WithoutCancel(ctx)
	options := &croft.LeaseOptions{TTL: s.g.Options.TTL, WaitFor: s.g.Options.Standby}
	if s.lease != nil {
		// An operator who opens the resource has the key for a moment.
		options.WaitFor = max(options.WaitFor, 2*time.Second)
		resumed, err := s.lease.Resume(ctx)
		switch {
		case err == nil:
			s.lease = resumed
			return nil
		case errors.Is(err, croft.ErrUnknown) && !errors.Is(err, croft.ErrNotOwned):
			return s.leaseless(err)
		}
		s.lease, s.doubt, s.raised = nil, nil, false // the terms tell what may be on its way
	}
	lease, err := s.acquire(ctx, options)
	if err != nil {
		return s.leaseless(err)
	}
	s.lease, s.raised = lease, false
	s.g.Emit(gate.Event{Kind: gate.Taken, Resource: s.resource, Token: lease.Token()})
	rec := s.terms(ctx)
	if !follows(rec, s.last) { // another gate may have sent the unsent write
		s.unsent = fence.Stamp{}
	}
	s.last = lease.Token()
	s.assess(ctx, rec)
	return nil
}

// acquire takes a new lease. It waits for another gate's, until this one
// closes.
func (s *resourceState) acquire(ctx context.Context, options *croft.LeaseOptions) (*croft.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.g.Options.Standby > 0 {
		go func() {
			select {
			case <-s.g.done:
				cancel(errClosing)
			case <-ctx.Done():
			}
		}()
	}
	return s.g.Options.Client.Acquire(ctx, s.g.Options.LeasePrefix+s.resource, options)
}

// terms returns the lease's record with the terms before it, if they can be
// read.
func (s *resourceState) terms(ctx context.Context) tenure.Record {
	rec := s.lease.Record()
	if len(rec.History) < 2 && rec.Cause != tenure.First { // an answer may come without history
		ctx, cancel := context.WithTimeout(ctx, markTimeout)
		defer cancel()
		if full, err := s.g.Options.Client.Store().Get(ctx, rec.Key); err == nil && full.Token == rec.Token {
			return full
		}
	}
	return rec
}

// follows reports whether only operators had the key between the term with that
// token and the newest.
func follows(rec tenure.Record, token fence.Token) bool {
	for i := len(rec.History) - 2; i >= 0; i-- {
		switch term := rec.History[i]; {
		case term.Token == token:
			return true
		case term.State == tenure.Held && term.Cause != tenure.Operator:
			return false
		}
	}
	return false
}

func (s *resourceState) leaseless(err error) error {
	if errors.Is(err, croft.ErrHeld) {
		return s.unavailable("held", time.Second,
			"another gate has this resource and this one stands by; "+
				"nothing was sent, try again, or go to the other",
			err)
	}
	return s.unavailable("unknown", time.Second,
		"the gate's own lease cannot be taken, so nothing may be written; nothing was sent, try again", err)
}

// assess closes the resource for a while if the terms before this one may have
// left a write on its way.
func (s *resourceState) assess(ctx context.Context, rec tenure.Record) {
	if rec.Cause == tenure.First {
		// This term is the first, or the store has forgotten the others.
		if served, err := s.served(ctx); err != nil || served {
			s.closeFor(s.g.Options.Settle,
				"the lease store remembers no gate before this one, but there may have been one")
			s.tell(ctx)
		}
		return
	}
	if s.g.Options.Served != nil {
		_, _ = s.served(ctx) // record it, in case the store forgets one day
	}
	left, believed := unsettled(rec)
	if !left {
		return
	}
	d := s.g.Options.Settle
	if believed && d != croft.Forever {
		d += s.g.Options.TTL // the gate before may not know yet that its lease was taken
	}
	s.closeFor(d, "the gate before this one did not end well ("+string(rec.Cause)+")")
	s.tell(ctx)
}

// served reports whether a gate may have served the resource before, and
// records that this one does.
func (s *resourceState) served(ctx context.Context) (bool, error) {
	if s.recorded {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	if s.g.Options.Served == nil {
		done, err := s.useMarks(ctx)
		if err != nil {
			return false, err
		}
		defer done()
		mark, err := s.marks.Mark(ctx)
		return !mark.IsZero(), err
	}
	select {
	case s.g.guardSlots <- struct{}{}:
		defer func() { <-s.g.guardSlots }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	own, err := s.g.Options.Served(ctx, s.resource)
	if err != nil {
		return false, err
	}
	defer own.Close()
	mark, err := own.Mark(ctx)
	if err == nil && mark.IsZero() {
		_, err = own.Raise(ctx, s.lease.Stamp())
	}
	s.recorded = err == nil
	return !mark.IsZero(), err
}

// unsettled looks at the terms before the newest. The result left says whether
// they may have left a write on its way. The result believed says whether the
// holder of one of them may still believe in its lease.
func unsettled(rec tenure.Record) (left, believed bool) {
	for i := len(rec.History) - 2; i >= 0; i-- {
		term := rec.History[i]
		switch {
		case term.Ended == tenure.EndReleased &&
			(term.Cause != tenure.Operator || strings.HasPrefix(term.Note, openedNote)):
			return left, believed
		case term.Ended == tenure.EndTakenOver:
			believed = true
		}
		left = true
	}
	// No term that ended well was found. If the history does not reach back to
	// the first term, nobody knows how the earlier ones ended.
	return true, believed || len(rec.History) == 0 || rec.History[0].Cause != tenure.First
}

// settle waits until a closed resource opens, and ends its term.
func (s *resourceState) settle(ctx context.Context) error {
	for {
		now := s.g.Clock.Now()
		if s.over() {
			s.reopen(context.WithoutCancel(ctx))
			return nil
		}
		left := max(s.doubt.until.Sub(now), time.Millisecond)
		if s.doubt.forever {
			left = time.Minute
		}
		s.tell(ctx) // this also shows whether an operator has ended the term
		if s.lease != nil && s.lease.Err() != nil {
			return nil
		}
		timer := s.g.Clock.Timer(min(left, time.Second))
		select {
		case <-timer.C():
			timer.Stop()
		case <-s.g.done:
			timer.Stop()
			return errClosing
		case <-ctx.Done():
			timer.Stop()
			until := "until an operator opens it" + s.g.Options.Opener
			if !s.doubt.forever {
				until = fmt.Sprintf("for another %s", left.Round(time.Millisecond))
			}
			return s.unavailable("unknown", left, "the resource is closed "+until+
				", because an earlier write may still be on its way; nothing was sent, try again then",
				fmt.Errorf("%s: %w", s.doubt.why, context.Cause(ctx)))
		}
	}
}

// over reports whether the write in doubt has settled.
func (s *resourceState) over() bool {
	return !s.doubt.forever && s.g.Clock.Now() >= s.doubt.until && (s.g.Settled == nil || s.g.Settled(s.resource))
}

// reopen ends a closed term. Nothing is on its way any more.
func (s *resourceState) reopen(ctx context.Context) {
	s.doubt = nil
	s.g.Emit(gate.Event{Kind: gate.Opened, Resource: s.resource})
	if s.lease != nil {
		_ = s.lease.Release(ctx) // if this fails the lease lapses, and the next term waits again
		s.lease, s.raised = nil, false
	}
}

// tell writes into the term's record that it is closed. People read it, and
// Reopen refuses without it.
func (s *resourceState) tell(ctx context.Context) {
	if s.lease == nil || s.lease.Err() != nil || s.doubt == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	marker := ClosedMark + " until an operator opens it: "
	if !s.doubt.forever {
		marker = fmt.Sprintf("%s for %s: ", ClosedMark, s.doubt.until.Sub(s.g.Clock.Now()).Round(time.Second))
	}
	_ = s.lease.Report(ctx, legible(marker+s.doubt.why))
}

// legible turns any text into a valid marker. The reason for a failure may
// contain text of others.
func legible(text string) string {
	return excerpt.Of(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?")), tenure.MaxText)
}

// Leave gives the lease of a write's resource back, if nothing else waits to
// write there. It is for a gate that shares its resources with others, which
// wait for the lease (Options.Standby). Call it after Depart.
func (a *Arrival) Leave() { a.s.releaseIdle(0) }

// releaseIdle gives the lease of a resource back that was unused for as long as
// idle. It also opens a resource that has settled. It leaves a resource in use
// alone.
func (s *resourceState) releaseIdle(idle time.Duration) {
	if !s.turn.try() {
		return
	}
	now := s.g.Clock.Now()
	ctx := context.Background()
	switch {
	case s.doubt != nil && s.over():
		s.reopen(ctx)
	case s.doubt != nil && (s.lease == nil || s.lease.Err() == nil):
		// Stay closed. A lease that has ended is not kept: the next term learns
		// from its record whether a write may be on its way.
	case now.Sub(s.used) >= idle:
		s.end(ctx)
		s.g.mu.Lock()
		if s.users == 0 && s.g.resources[s.resource] == s { // it may be forgotten already
			delete(s.g.resources, s.resource)
			s.g.clients.count(s.client, usage{resources: -1})
		}
		s.g.mu.Unlock()
	}
	s.turn.pass()
}

// end gives the lease back and closes the guard. The caller has the turn.
func (s *resourceState) end(ctx context.Context) {
	if s.lease != nil {
		if s.doubt != nil && !s.over() {
			_ = s.lease.Fail(ctx) // the next gate waits
		} else {
			_ = s.lease.Release(ctx)
		}
		s.g.Emit(gate.Event{Kind: gate.Left, Resource: s.resource})
		s.lease, s.doubt = nil, nil // the terms tell what may be on its way
	}
	s.closeMarks()
}
