package sim

import (
	"errors"
	"time"
)

// message is one copy of a request on its way to a server.
type message struct {
	// stray is set for a copy that nobody answers for: a second one, or one that arrives when its sender has every right to take it for lost.
	stray bool
}

// The ways in which a message fails that its sender is told of.
var (
	errRefused = errors.New("connection refused")
	errReset   = errors.New("connection reset")
)

// line is a way to a server: whether it is reached at all is for the server and the host to say.
type line struct {
	h    *host
	up   func() bool // whether the server can be reached
	cuts bool        // whether being cut off from the store concerns it
	// began is when the call began that the request is a part of: after callBound its sender takes it for lost. Negative: now.
	began time.Duration
}

// carry takes a request to a server and the reply back, or not. serve is called for every copy that arrives, with a function that sends what is to happen at the sender when
// the reply has come. broke is called if the sender is told that something went wrong; sometimes it is not told.
func (w *world) carry(l line, serve func(m message, reply func(func())), broke func(error)) {
	h := l.h
	r, life := h.rng, h.life // who has died since is told nothing
	// All is drawn first, so that a fault that is left out changes as little as may be.
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
