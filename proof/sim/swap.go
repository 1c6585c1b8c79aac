package sim

import (
	"context"
	"errors"
	"time"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// swap is one compare-and-swap in flight. On a plain register it is one
// message. An object store rejects some. If a reply is lost, the swap reads the
// object to find out, as backend/s3 does.
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

// mostTries is how often a swap is sent before the client gives up.
const mostTries = 4

// The answers of an object store that has changed nothing.
var (
	errOvertaken = errors.New("412: the object has changed")
	errConflict  = errors.New("409: another request is under way")
	errThrottled = errors.New("429: too many requests")
)

// put sends one copy of the swap.
func (s *swap) put() {
	v := s.r.v
	s.tries++
	v.w.ops++
	v.w.carry(s.r.conn(s.ctx), func(m message, reply func(func())) {
		err := s.serve(m)
		reply(func() { s.answered(err) })
	}, func(err error) { s.answered(err) })
}

// serve is the atomic step at the server.
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
	case !r.v.objects: // the next request with the same secret finds out
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

// settle reads the object, to find out whether a copy took effect.
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
			s.done(cas.ErrConflict) // another write is there, perhaps after this one
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
