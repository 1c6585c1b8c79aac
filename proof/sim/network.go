package sim

import (
	"errors"
	"time"
)

// message is one copy of a request to a server.
type message struct {
	// stray marks a copy that no client is responsible for: a second copy, or a
	// copy that arrives when its sender may take it for lost.
	stray bool
}

// The errors that tell a sender of a failed message.
var (
	errRefused = errors.New("connection refused")
	errReset   = errors.New("connection reset")
)

// conn is a connection to a server.
type conn struct {
	h    *host
	up   func() bool // whether the server is reachable
	cuts bool        // whether host.cut applies
	// began is when the call began that the request belongs to. After callBound
	// the sender takes the request for lost. Negative means now.
	began time.Duration
}

// carry takes a request to a server, and the reply back, unless a fault
// prevents it. It calls serve for every copy that arrives. serve gets a
// function that sends the reply, with the work to do at the sender. carry calls
// broke if the sender learns of a failure. Sometimes it does not.
func (w *world) carry(l conn, serve func(m message, reply func(func())), broke func(error)) {
	h := l.h
	r, life := h.rng, h.life // if the process dies, nothing reaches its successor
	// Draw all numbers first, so that leaving out a fault changes little else.
	there, back := between(r, time.Millisecond, 12*time.Millisecond), between(r, time.Millisecond, 12*time.Millisecond)
	delay, slack := between(r, 0, 3*time.Second), between(r, 0, 3*time.Second)
	late, again := between(r, 0, lateBy-time.Second), between(r, 0, lateBy-time.Second)
	pause := skewed(r, longestWait)
	told := chance(r, 80)
	tell := func(err error) {
		if told {
			h.within(life, w.now+back, func() { broke(err) })
		}
	}
	leaves, posted := w.now, w.now
	if w.fault(PausedSend) {
		h.stop(pause)
		leaves = h.stopped
	}
	unreached := func() bool {
		straggler := w.calm && posted <= w.calmed && w.now > w.calmed+stragglers
		return straggler || !l.up() || l.cuts && w.now < h.cut
	}
	if w.fault(LostRequest) {
		w.at(leaves+there, func() { tell(errRefused) })
		return
	}
	began := l.began
	if began < 0 {
		began = w.now
	}
	switch {
	case w.fault(SlowRequest):
		there += delay
	case w.fault(LateRequest):
		there += late
	}
	m := message{stray: leaves+there-began >= callBound}
	if w.fault(Doubled) {
		w.at(leaves+again, func() {
			if !unreached() {
				serve(message{stray: true}, func(func()) {})
			}
		})
	}
	w.at(leaves+there, func() {
		if unreached() {
			tell(errRefused)
			return
		}
		serve(m, func(deliver func()) {
			if w.fault(LostReply) || unreached() {
				tell(errReset)
				return
			}
			if w.fault(SlowReply) {
				back += slack
			}
			h.within(life, w.now+back, deliver)
		})
	})
}
