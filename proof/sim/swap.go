package sim

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// swap is one compare-and-swap on its way. On a plain register it is one message; an object store turns some away, and a lost reply is settled by reading what has
// become of it, as backend/s3 does.
type swap struct {
	r       *remote
	ctx     context.Context
	req     tenure.Request
	old     cas.Version
	next    tenure.Record
	version cas.Version
	tries   int
	doubt   bool // a copy may have taken effect
	done    func(error)
}

// mostTries is how often an object store is asked before its client gives up.
const mostTries = 4

// The answers of an object store that change nothing.
var (
	errOvertaken = errors.New("412: the object has changed")
	errConflict  = errors.New("409: another request is under way")
	errThrottled = errors.New("429: too many requests")
)

// put sends one copy.
func (s *swap) put() {
	v := s.r.v
	s.tries++
	v.w.ops++
	v.w.carry(s.r.line(s.ctx), func(m message, reply func(func())) {
		err := s.serve(m)
		reply(func() { s.answered(err) })
	}, func(err error) { s.answered(err) })
}

// serve is what happens at the server: the one atomic step.
func (s *swap) serve(m message) error {
	v := s.r.v
	switch {
	case v.objects && v.w.fault(Conflict):
		return errConflict
	case v.objects && v.w.fault(Throttled):
		return errThrottled
	case v.records[s.next.Key].version != s.old && !v.w.mutant.is("unconditional-put"):
		if v.objects {
			v.w.cover("answer", "412")
		}
		return errOvertaken
	}
	v.write(s.req, kept{record: s.next, version: s.version}, m)
	return nil
}

func (s *swap) answered(err error) {
	r := s.r
	w := r.v.w
	switch {
	case err == nil,
		w.mutant.is("conflict-is-done") && errors.Is(err, errConflict),
		w.mutant.is("lost-is-done") && errors.Is(err, errReset):
		r.memory.Keep(s.next, s.version)
		s.done(nil)
	case errors.Is(err, errOvertaken) && !s.doubt:
		r.memory.Forget(s.next.Key)
		s.done(cas.ErrConflict)
	case !r.v.objects: // what has become of it is for the next request with the same secret to find out
		s.done(err)
	default:
		s.doubt = true
		if errors.Is(err, errConflict) || errors.Is(err, errThrottled) {
			s.again(err)
			return
		}
		s.settle(err)
	}
}

// settle reads what has become of a copy that may have taken effect.
func (s *swap) settle(failed error) {
	s.r.load(s.ctx, s.next.Key, func(held cas.Entry, err error) {
		switch {
		case err != nil:
			s.done(err)
		case held.Version == s.version:
			s.r.memory.Keep(s.next, s.version)
			s.done(nil)
		case held.Version != s.old:
			s.r.memory.Forget(s.next.Key)
			s.done(cas.ErrConflict) // another's is there: perhaps after this one
		default:
			s.again(failed)
		}
	})
}

// again sends another copy after a while.
func (s *swap) again(failed error) {
	if s.tries >= mostTries {
		s.r.memory.Forget(s.next.Key)
		s.done(failed)
		return
	}
	pause := min(100*time.Millisecond<<s.tries, 5*time.Second)
	s.r.c.timer(between(s.r.c.rng, pause/2, pause), func() {
		if s.ctx.Err() == nil {
			s.put()
		}
	})
}
