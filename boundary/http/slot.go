package httpfence

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

// slot is one resource at a gate. The write that has the turn has all below it.
type slot struct {
	g        *Gate
	resource string
	client   string // who wrote to it first; see clients
	users    int    // arrived and not departed; under the gate's mutex
	turn     queue
	// seen is the newest mark that was seen where it is kept, nil if none was;
	// inside says that a write is inside which has raised it. Both can be read
	// without the turn.
	seen   atomic.Pointer[fence.Mark]
	inside atomic.Bool

	lease *croft.Lease
	last  fence.Token // of the newest lease
	marks guard.Guard
	// mark is the newest that was seen; raised says that this gate has raised it, durably, in its present term.
	mark   fence.Mark
	raised bool
	// recorded says that Served knows of this gate.
	recorded bool
	// unsent is the stamp of the last admitted write if nothing of it has left: it may come again, under the same number.
	unsent fence.Stamp
	doubt  *doubt // nil: the resource is open
	used   clock.Instant
}

// doubt is why a resource is closed, and until when.
type doubt struct {
	until   clock.Instant
	forever bool
	why     string
}

// admit prepares the slot, checks the write, and raises the mark to its stamp. The caller has the turn.
func (s *slot) admit(ctx context.Context, w write) (*passage, error) {
	s.used = s.g.clk.Now()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if s.turn.outranked(w.stamp) { // it came while the resource was closed
		return nil, errOutranked
	}
	err := s.g.checkCurrent(ctx, w, func(why error) {
		s.g.emit(gate.Event{
			Kind: gate.Unsure, Resource: s.resource, Method: w.what, Key: w.stamp.Key, Token: w.stamp.Token, Err: why,
		})
	})
	if err != nil {
		return nil, err
	}
	if w.stamped {
		if err := s.raise(ctx, w.stamp); err != nil {
			return nil, err
		}
		s.see(s.mark)
		s.inside.Store(true)
		s.turn.refuse(s.mark)
	}
	p := &passage{s: s, w: w}
	if s.lease == nil {
		p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	} else {
		if err := s.lease.Err(); err != nil { // while the mark was being raised
			s.keep(w.stamp)
			return nil, s.unavailable("unknown", time.Second, "the gate's own lease on the resource was lost; nothing was sent, try again", err)
		}
		p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		p.lease = s.lease
		held := s.lease.Context()
		p.unhook = context.AfterFunc(held, func() { p.cancel(context.Cause(held)) }) // it may still run when the passage has ended
	}
	if s.g.flaw.unserialised {
		p.free.Do(func() { s.leave() })
	}
	s.g.emit(gate.Event{Kind: gate.Admitted, Resource: s.resource, Method: w.what, Key: w.stamp.Key, Token: w.stamp.Token})
	return p, nil
}

// refuseEarly refuses a write that the mark shuts out before its body is received. A
// mark that was seen is only a reason to look, in turn: an operator may have
// moved the resource to another key since. No look is needed for an older
// token of the key that is inside.
func (a *arrival) refuseEarly(ctx context.Context) error {
	s, stamp := a.s, a.w.stamp
	seen := s.seen.Load()
	if seen == nil {
		return nil
	}
	err := shutOut(*seen, stamp)
	if err == nil || s.inside.Load() && stamp.Key == seen.Key {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.g.o.Wait)
	defer cancel()
	if err := a.wait(ctx); err != nil {
		return err
	}
	defer s.turn.pass()
	ctx, cancel = context.WithTimeout(ctx, markTimeout)
	defer cancel()
	done, err := s.useMarks(ctx)
	if err != nil {
		return err
	}
	defer done()
	mark, err := s.marks.Mark(ctx)
	if err != nil {
		return s.unreachable(err)
	}
	s.see(mark)
	return shutOut(mark, stamp)
}

// see takes note of a mark that was seen where it is kept.
func (s *slot) see(mark fence.Mark) { s.seen.Store(&mark) }

// raise checks the stamp and makes sure that the mark stands at it, durably, before anything is written.
func (s *slot) raise(ctx context.Context, stamp fence.Stamp) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout) // a move of the mark is not left half done
	defer cancel()
	done, err := s.useMarks(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !s.raised { // what an earlier gate has admitted
		mark, err := s.marks.Mark(ctx)
		if err != nil {
			return s.unreachable(err)
		}
		s.mark = mark
	}
	// Only the place of the mark can tell what is stale: others may have raised it, or moved the resource to another key. But to raise twice is the same
	// as once, and to write twice is not: that a number has been used is seen here.
	next, err := s.mark.Admit(stamp)
	if errors.Is(err, fence.ErrRepeated) && stamp != s.unsent {
		return err
	}
	if err == nil && s.raised && next == s.mark { // there is nothing to write down, only to see that nobody has come between
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
		if refused(err) {
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

// closeMarks closes the place of the mark.
func (s *slot) closeMarks() {
	if s.marks != nil {
		_ = s.marks.Close()
		s.marks = nil
		s.g.openGuards.Add(-1)
	}
}

// sending takes note that a write under this stamp may be sent. Another that was not may still come after it if the mark has stayed where that one left it.
func (s *slot) sending(stamp fence.Stamp) {
	if stamp == s.unsent || s.mark != fence.Mark(s.unsent) {
		s.unsent = fence.Stamp{}
	}
}

// keep takes note that nothing was sent under a stamp although its number is used up.
func (s *slot) keep(stamp fence.Stamp) {
	if stamp.Seq != 0 {
		s.unsent = stamp
	}
}

// useMarks opens the place of the mark, in turn with others if there are many. Call done when it has been used.
func (s *slot) useMarks(ctx context.Context) (done func(), err error) {
	select {
	case s.g.guardSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, s.unreachable(context.Cause(ctx))
	}
	if s.marks == nil {
		marks, err := s.g.o.Marks(ctx, s.resource)
		if err != nil {
			<-s.g.guardSlots
			return nil, s.unreachable(err)
		}
		s.marks = marks
		s.g.openGuards.Add(1)
	}
	return func() {
		if s.g.openGuards.Load() > mostOpenGuards {
			s.closeMarks()
		}
		<-s.g.guardSlots
	}, nil
}

// markIn is the mark that a refusal rests on.
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

// refused tells a decision of the law from a failure to decide.
func refused(err error) bool {
	return errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrCollision) || errors.Is(err, fence.ErrWrongKey) || errors.Is(err, fence.ErrRepeated)
}

func (s *slot) unreachable(err error) error {
	return s.unavailable("unknown", time.Second, "the mark of the resource cannot be read or raised, so nothing may be written; nothing was sent, try again", err)
}

func (s *slot) unavailable(code string, retry time.Duration, say string, err error) error {
	return &refusal{status: http.StatusServiceUnavailable, code: code, resource: s.resource, retry: retry, say: say, err: err}
}

// leave gives the turn to the next.
func (s *slot) leave() {
	s.used = s.g.clk.Now()
	s.inside.Store(false)
	s.turn.pass()
}

// close closes the resource because a write may still be on its way. The caller has the turn.
func (s *slot) close(why string) {
	s.closeFor(s.g.o.Settle, why)
	s.tell(context.Background())
}

func (s *slot) closeFor(d time.Duration, why string) {
	s.doubt = &doubt{until: s.g.clk.Now().Add(d), forever: d == croft.Forever, why: why}
	if s.doubt.forever {
		s.doubt.until = 0
	}
	s.g.emit(gate.Event{Kind: gate.Closed, Resource: s.resource, For: d, Err: errors.New(why)})
}

// passage is one write that was let in. Exactly one of its endings counts.
type passage struct {
	s      *slot
	w      write
	lease  *croft.Lease // nil if the gate has none
	ctx    context.Context
	cancel context.CancelCauseFunc // its context ends with the lease
	unhook func() bool
	once   sync.Once
	free   sync.Once // the turn
}

// alive says whether the gate may still send: it looks at the clock, so it is right also just after a pause.
func (p *passage) alive() error {
	if p.lease == nil {
		return nil
	}
	if p.lease.Remaining() <= 0 {
		return fmt.Errorf("the gate's own lease on the resource was lost: %w", croft.ErrLost)
	}
	return nil
}

// answered ends the passage of a write whose outcome is known.
func (p *passage) answered() { p.end(func(*slot) {}) }

// notSent ends the passage of a write of which nothing has left: it may come again.
func (p *passage) notSent() { p.end(func(s *slot) { s.keep(p.w.stamp) }) }

// inDoubt ends the passage of a write that may or may not take effect, now or later.
func (p *passage) inDoubt(why string) { p.end(func(s *slot) { s.close(p.w.what + ": " + why) }) }

func (p *passage) end(how func(*slot)) {
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
