package sim

import (
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// swapping is a writer at a manifest. It reads the mark, decides, and replaces
// the manifest that it has read by the next one. The condition makes this one
// step, however late the put arrives.
type swapping struct {
	r     *resource
	c     *client
	act   act
	done  func(error)
	tries int
}

func (r *resource) enterManifest(c *client, a act, done func(error)) {
	s := &swapping{r: r, c: c, act: a, done: done}
	s.begin()
}

// begin reads the manifest.
func (s *swapping) begin() {
	r := s.r
	s.tries++
	r.w.carry(r.conn(s.c), func(_ message, reply func(func())) {
		mark, version := r.mark, r.content.version
		reply(func() { s.decide(mark, version) })
	}, func(err error) { s.done(store.Unknown(err)) })
}

// decide runs at the writer. A refusal rests on the mark that was read, which
// can only have become newer since.
func (s *swapping) decide(mark fence.Mark, version int) {
	next, err := s.r.decide(mark, s.act)
	if err != nil {
		s.r.refused(s.act, err)
		s.done(err)
		return
	}
	s.put(mark, version, next)
}

func (s *swapping) put(mark fence.Mark, version int, next fence.Mark) {
	r := s.r
	r.w.ops++
	r.w.carry(r.conn(s.c), func(_ message, reply func(func())) {
		unchanged := r.mark == mark && r.content.version == version
		if unchanged || r.w.mutant.is("blind-manifest") {
			r.took(s.act)
			if s.act.write {
				r.wroteBy(s.act)
			}
			r.mark = next
			reply(func() { s.done(nil) })
			return
		}
		r.w.cover("fence", "overtaken")
		reply(func() {
			if s.tries < 8 {
				s.begin()
			} else {
				s.done(store.Unknown(errOvertaken))
			}
		})
	}, func(err error) { s.done(store.Unknown(err)) })
}
