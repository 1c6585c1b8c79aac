package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// client is one process that uses leases: the thin runtime around the machines, as package croft has it.
type client struct {
	host
	instance string
	jobs     []*job
	leases   []*lease
	routines []*routine
	armed    int // which timer of the leases counts
}

// jobsEach is how many jobs a client does at a time.
const jobsEach = 2

func newClient(w *world, name string) *client {
	return &client{host: newHost(w, name)}
}

// start begins the life of a process.
func (c *client) start() {
	c.instance = fmt.Sprintf("%s-%d", c.name, c.life)
	c.jobs = nil
	if c == c.w.operator { // who only acts when told to
		return
	}
	for i := range jobsEach {
		j := &job{c: c, name: fmt.Sprintf("%s.%d", c.name, i)}
		c.jobs = append(c.jobs, j)
		c.soon(c.w.now+upTo(c.rng, time.Second), j.begin)
	}
}

// crash ends the process with all it knows, and starts another in its place some time later.
func (c *client) crash(away time.Duration) {
	c.drop()
	c.life++
	c.jobs, c.leases = nil, nil
	c.w.forgetClient(c)
	c.soon(c.w.now+away, c.start)
}

// drop ends the calls of the process.
func (c *client) drop() {
	for _, rt := range c.routines {
		rt.abandon()
	}
	c.routines = nil
}

// forgetClient lets go of what servers and guards keep for a process.
func (w *world) forgetClient(c *client) {
	if v, ok := w.store.(*vault); ok {
		delete(v.stores, c)
	}
	if t, ok := w.store.(*turns); ok {
		delete(t.desks, c)
	}
	base := w.store.base()
	base.watches = slices.DeleteFunc(base.watches, func(u *pursuit) bool { return u.c == c })
	for _, r := range w.resources {
		r.abandon(c)
	}
}

// errTimeout is a call's that took too long.
var errTimeout = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// apply makes one call of the store. done is called once, with an answer for each request and the instant just before they were sent.
func (c *client) apply(requests []tenure.Request, done func([]store.Answer, instant)) {
	sent, finished := c.Now(), false
	finish := func(answers []store.Answer, err error) {
		if finished {
			return
		}
		finished = true
		if err != nil {
			answers = store.Failed(len(requests), err)
		}
		for i := range answers {
			c.w.coverAnswer(requests[i], answers[i])
		}
		if c.w.mutant.is(TimeFromReply) {
			sent = c.Now()
		}
		done(answers, sent)
	}
	c.routines = slices.DeleteFunc(c.routines, func(rt *routine) bool { return rt.over })
	abandon := c.w.store.apply(c, requests, finish)
	c.timer(callTimeout, func() {
		if !finished {
			abandon()
			finish(nil, errTimeout)
		}
	})
}

// reply is the answer to one request, and when it was sent.
type reply struct {
	answer      store.Answer
	first, sent instant // just before the first copy, and before the one that was answered
}

// How a request is asked until it is answered, as package croft does.
const (
	patientFor   = time.Second
	firstPause   = 25 * time.Millisecond
	releaseBound = 2 * time.Second
	actBound     = 2 * callTimeout
)

// ask puts one request until its outcome is known or the bound has passed; then known is false.
func (c *client) ask(req tenure.Request, bound time.Duration, done func(r reply, known bool)) {
	first, over, pause := c.Now(), false, firstPause
	var put func()
	finish := func(r reply, known bool) {
		if !over {
			over = true
			done(r, known)
		}
	}
	put = func() {
		answered := false
		next := func() {
			if over {
				return
			}
			if c.Now() >= first.Add(bound) {
				finish(reply{}, false)
				return
			}
			put()
		}
		c.apply([]tenure.Request{req}, func(answers []store.Answer, sent instant) {
			if over {
				return
			}
			if !errors.Is(answers[0].Err, store.ErrUnknown) {
				finish(reply{answers[0], first, sent}, true)
				return
			}
			if !answered {
				answered = true
				c.timer(pause, next)
				pause = min(2*pause, time.Second)
			}
		})
		c.timer(min(patientFor, bound), func() {
			if !answered {
				answered = true
				next()
			}
		})
	}
	put()
}

// coverAnswer notes what kind of answer a client got.
func (w *world) coverAnswer(req tenure.Request, a store.Answer) {
	var held *tenure.HeldError
	var not *tenure.NotOwnedError
	switch {
	case a.Err == nil:
	case errors.As(a.Err, &held):
		w.cover("refusal", "held: "+string(held.Why))
	case errors.As(a.Err, &not):
		w.cover("refusal", "not owned: "+string(not.Why))
	case errors.Is(a.Err, store.ErrUnknown):
		w.cover("refusal", "unknown")
	default:
		w.fail(NoUnknownPanic, "a %s of %s was refused as bad input: %v", req.Verb, req.Key, a.Err)
	}
}
