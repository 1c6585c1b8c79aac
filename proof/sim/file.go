package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// entering is a writer in a file's guard. Its steps are lock, check, mark,
// content and unlock. It may be stopped or die between any two. The lock ends
// with the process, not when the caller gives up.
type entering struct {
	r    *resource
	c    *client
	act  act
	done func(error)
	next fence.Mark
}

// guardWait is how long a writer waits for the lock.
const guardWait = 2 * time.Second

func (r *resource) enterFile(c *client, a act, done func(error)) {
	e := &entering{r: r, c: c, act: a, done: done}
	if r.lock == nil || r.w.mutant.is("no-file-lock") {
		r.lock = e
		e.then(e.check)
		return
	}
	r.queue = append(r.queue, e)
	c.timer(guardWait, func() {
		if i := slices.Index(r.queue, e); i >= 0 {
			r.queue = slices.Delete(r.queue, i, i+1)
			done(fmt.Errorf("%w: another process is inside", guard.ErrBusy))
		}
	})
}

// then goes on to the next step, unless the process dies or stops in between.
func (e *entering) then(step func()) {
	c, w := e.c, e.r.w
	takes := between(c.rng, 50*time.Microsecond, 2*time.Millisecond)
	pause, away := skewed(c.rng, longestStop), upTo(c.rng, 5*time.Second)
	switch {
	case w.fault(GuardCrash):
		w.say(c.name, "dies inside the guard of %s", e.r.name)
		life := c.life
		w.at(w.now, func() { // as an event of its own, after the current one
			if c.life == life {
				c.crash(away)
			}
		})
		return
	case w.fault(PausedStep):
		w.say(c.name, "is stopped inside the guard of %s for %s", e.r.name, pause)
		c.stop(pause)
	}
	c.soon(w.now+takes, step)
}

func (e *entering) check() {
	next, err := e.r.decide(e.r.mark, e.act)
	if err != nil {
		e.r.refused(e.act, err)
		e.leave(err)
		return
	}
	e.next = next
	if e.act.write && e.r.w.mutant.is("write-then-mark") {
		e.then(e.put)
		return
	}
	e.then(e.advance)
}

// advance writes the mark.
func (e *entering) advance() {
	r := e.r
	r.mark = e.next
	r.took(act{stamp: e.act.stamp, write: e.act.write})
	switch {
	case e.act.write && !r.w.mutant.is("write-then-mark"):
		e.then(e.put)
	default:
		e.leave(nil)
	}
}

// put replaces the content.
func (e *entering) put() {
	e.r.wroteBy(e.act)
	if e.r.w.mutant.is("write-then-mark") {
		e.then(e.advance)
		return
	}
	e.leave(nil)
}

func (e *entering) leave(err error) {
	e.r.unlock(e)
	e.done(err)
}

// unlock lets the next writer in.
func (r *resource) unlock(e *entering) {
	if r.lock != e {
		return
	}
	r.lock = nil
	if len(r.queue) > 0 {
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.lock = next
		next.then(next.check)
	}
}
