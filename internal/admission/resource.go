package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/clock"
)

// resourceState is one resource at a gate. The write that has the turn owns all
// fields below turn, but for seen and inside.
type resourceState struct {
	g        *Gate
	resource string
	client   string // the first to write to it; see clients
	users    int    // writes that have arrived and not departed; under the gate's mutex
	turn     queue
	// seen is the newest mark that was read from its guard, or nil. inside says
	// that a write which has raised it is inside. Both can be read without the
	// turn.
	seen   atomic.Pointer[fence.Mark]
	inside atomic.Bool

	lease *croft.Lease
	last  fence.Token // token of the newest lease
	marks guard.Guard
	// mark is the newest mark seen. raised says that this gate has raised it,
	// durably, in its present term.
	mark   fence.Mark
	raised bool
	// recorded says that the guard of Served knows of this gate.
	recorded bool
	// unsent is the stamp of the last admitted write if nothing of that write
	// was sent. It may come again under the same number.
	unsent fence.Stamp
	doubt  *doubt // why the resource is closed; nil if it is open
	used   clock.Instant
}

// doubt says why a resource is closed, and until when.
type doubt struct {
	until   clock.Instant
	forever bool
	why     string
}

// admit prepares the resource, checks the write, and raises the mark to its
// stamp. The caller has the turn.
func (s *resourceState) admit(ctx context.Context, w Write) (*Passage, error) {
	s.used = s.g.Clock.Now()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if s.turn.outranked(w.Stamp) { // a newer owner came while the resource was closed
		return nil, errOutranked
	}
	err := s.g.checkCurrent(ctx, w, func(why error) { s.g.unsure(w, 0, why) })
	if err != nil {
		return nil, err
	}
	if w.Stamped {
		if err := s.raise(ctx, w.Stamp); err != nil {
			return nil, err
		}
		s.see(s.mark)
		s.inside.Store(true)
		s.turn.refuse(s.mark)
	}
	p := &Passage{s: s, Write: w}
	if s.lease == nil {
		p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	} else {
		if err := s.lease.Err(); err != nil { // it ended while the mark was being raised
			s.keep(w.Stamp)
			return nil, s.unavailable("unknown", time.Second,
				"the gate's own lease on the resource was lost; nothing was sent, try again", err)
		}
		p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		p.Lease = s.lease
		held := s.lease.Context()
		// The function may still run when the passage has ended.
		p.unhook = context.AfterFunc(held, func() { p.cancel(context.Cause(held)) })
	}
	if s.g.Flaw.Unserialised {
		p.free.Do(func() { s.leave() })
	}
	s.g.Emit(gate.Event{
		Kind: gate.Admitted, Resource: s.resource, Method: w.What, Key: w.Stamp.Key, Token: w.Stamp.Token,
	})
	return p, nil
}

// refuseEarly refuses a write that the mark shuts out, before its body is
// received. A mark that was seen earlier is only a reason to read it again, in
// turn: an operator may have moved the resource to another key since. It need
// not be read again for an older token of the key that is inside.
func (a *Arrival) refuseEarly(ctx context.Context) error {
	s, stamp := a.s, a.w.Stamp
	seen := s.seen.Load()
	if seen == nil {
		return nil
	}
	err := shutOut(*seen, stamp)
	if err == nil || s.inside.Load() && stamp.Key == seen.Key {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.g.Options.Wait)
	defer cancel()
	if err := a.wait(ctx); err != nil {
		return err
	}
	defer s.turn.pass()
	ctx, cancel = context.WithTimeout(ctx, markTimeout)
	defer cancel()
	mark, done, err := s.look(ctx)
	if err != nil {
		return err
	}
	done()
	return shutOut(mark, stamp)
}

// look reads the mark from its guard. The caller has the turn. Call done when
// the guard is no longer used.
func (s *resourceState) look(ctx context.Context) (mark fence.Mark, done func(), err error) {
	if done, err = s.useMarks(ctx); err != nil {
		return mark, nil, err
	}
	if mark, err = s.marks.Mark(ctx); err != nil {
		done()
		return mark, nil, s.unreachable(err)
	}
	s.see(mark)
	return mark, done, nil
}

// see remembers a mark that was read from its guard.
func (s *resourceState) see(mark fence.Mark) { s.seen.Store(&mark) }

// raise checks the stamp and makes sure that the mark stands at it, durably,
// before anything is written.
func (s *resourceState) raise(ctx context.Context, stamp fence.Stamp) error {
	// The raise must not be left half done when the client leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	done, err := s.useMarks(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !s.raised { // an earlier gate may have admitted newer stamps
		mark, err := s.marks.Mark(ctx)
		if err != nil {
			return s.unreachable(err)
		}
		s.mark = mark
	}
	// Only the guard knows which stamps are stale: others may have raised the
	// mark, or moved the resource to another key. But raising twice is the same
	// as raising once, and writing twice is not. So a number that was used is
	// refused here.
	next, err := s.mark.Admit(stamp)
	if errors.Is(err, fence.ErrRepeated) && stamp != s.unsent {
		return err
	}
	// There is nothing to write. Only see whether somebody has raised the mark.
	if err == nil && s.raised && next == s.mark {
		mark, err := s.marks.Mark(ctx)
		if err != nil {
			return s.unreachable(err)
		}
		if mark == s.mark {
			s.sending(stamp)
			return nil
		}
	}
	mark, err := s.marks.Raise(ctx, stamp)
	if err != nil {
		if guard.Refused(err) {
			if mark, known := markIn(err); known {
				s.see(mark)
			}
			return err
		}
		s.raised = false
		s.keep(stamp)
		return s.unreachable(err)
	}
	s.mark, s.raised = mark, true
	s.sending(stamp)
	return nil
}

// closeMarks closes the guard of the mark.
func (s *resourceState) closeMarks() {
	if s.marks != nil {
		_ = s.marks.Close()
		s.marks = nil
		s.g.openGuards.Add(-1)
	}
}

// sending notes that a write under this stamp may now be sent. The unsent stamp
// is forgotten if it is this one, or if the mark has moved on from it.
func (s *resourceState) sending(stamp fence.Stamp) {
	if stamp == s.unsent || s.mark != s.unsent.Mark() {
		s.unsent = fence.Stamp{}
	}
}

// keep notes that nothing was sent under a stamp although its number is used
// up.
func (s *resourceState) keep(stamp fence.Stamp) {
	if stamp.Seq != 0 {
		s.unsent = stamp
	}
}

// useMarks opens the guard of the mark, and waits while too many guards are in
// use. Call done after use.
func (s *resourceState) useMarks(ctx context.Context) (done func(), err error) {
	select {
	case s.g.guardSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, s.unreachable(context.Cause(ctx))
	}
	if s.marks == nil {
		marks, err := s.g.Options.Marks(ctx, s.resource)
		if err != nil {
			<-s.g.guardSlots
			return nil, s.unreachable(err)
		}
		s.marks = marks
		s.g.openGuards.Add(1)
	}
	return func() {
		if s.g.openGuards.Load() > MostOpenGuards {
			s.closeMarks()
		}
		<-s.g.guardSlots
	}, nil
}

// markIn returns the mark on which a refusal rests.
func markIn(err error) (mark fence.Mark, known bool) {
	var stale *fence.StaleError
	var refused *fence.RefusedError
	switch {
	case errors.As(err, &stale):
		return stale.Newest, true
	case errors.As(err, &refused):
		return refused.Mark, true
	}
	return fence.Mark{}, false
}

func (s *resourceState) unreachable(err error) error {
	return s.unavailable("unknown", time.Second,
		"the mark of the resource cannot be read or raised, so nothing may be written; "+
			"nothing was sent, try again",
		err)
}

func (s *resourceState) unavailable(code string, retry time.Duration, say string, err error) error {
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: code, Resource: s.resource, Retry: retry, Say: say,
		Err: err,
	}
}

// leave passes the turn to the next write.
func (s *resourceState) leave() {
	s.used = s.g.Clock.Now()
	s.inside.Store(false)
	s.turn.pass()
}

// close closes the resource because a write may still be on its way. The caller
// has the turn.
func (s *resourceState) close(why string) {
	s.closeFor(s.g.Options.Settle, why)
	s.tell(context.Background())
}

func (s *resourceState) closeFor(d time.Duration, why string) {
	s.doubt = &doubt{until: s.g.Clock.Now().Add(d), forever: d == croft.Forever, why: why}
	if s.doubt.forever {
		s.doubt.until = 0
	}
	s.g.Emit(gate.Event{Kind: gate.Closed, Resource: s.resource, For: d, Err: errors.New(why)})
}

// Passage is one write that was let in. Exactly one of its endings counts:
// Answered, NotSent or InDoubt.
type Passage struct {
	Write Write
	Lease *croft.Lease // nil if the gate has none

	s      *resourceState
	ctx    context.Context
	cancel context.CancelCauseFunc // ends ctx; so does the end of the lease
	unhook func() bool
	once   sync.Once
	free   sync.Once // passes the turn on
}

// Context ends when the passage has ended, or when the gate's lease is lost.
func (p *Passage) Context() context.Context { return p.ctx }

// Alive returns nil while the gate may send. It reads the clock, so it is right
// also just after the process was paused.
func (p *Passage) Alive() error {
	if p.Lease == nil {
		return nil
	}
	if p.Lease.Remaining() <= 0 {
		return fmt.Errorf("the gate's own lease on the resource was lost: %w", croft.ErrLost)
	}
	return nil
}

// Answered ends the passage of a write whose outcome is known.
func (p *Passage) Answered() { p.end(func(*resourceState) {}) }

// NotSent ends the passage of a write of which nothing was sent. It may come
// again.
func (p *Passage) NotSent() { p.end(func(s *resourceState) { s.keep(p.Write.Stamp) }) }

// InDoubt ends the passage of a write that may or may not take effect, now or
// later. The resource closes until the write has settled.
func (p *Passage) InDoubt(why string) {
	p.end(func(s *resourceState) { s.close(s.g.Options.Hide(p.Write.What + ": " + why)) })
}

// FreeTurn passes the turn on before the passage has ended. It is a flaw, for
// tests of the tests.
func (p *Passage) FreeTurn() { p.free.Do(p.s.leave) }

func (p *Passage) end(how func(*resourceState)) {
	p.once.Do(func() {
		if p.unhook != nil {
			p.unhook()
		}
		p.cancel(nil)
		p.free.Do(func() {
			how(p.s)
			p.s.leave()
		})
	})
}
