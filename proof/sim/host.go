package sim

import (
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// host is a machine with one process. Its boot clock always runs. Its monotonic
// clock drives timers, and stands still in suspend.
type host struct {
	w    *world
	name string
	rng  *rand.Rand
	boot dial
	mono dial
	base int64 // the first time on the boot clock
	ppm  int64 // how fast both clocks are, in parts per million

	stopped time.Duration // the process does not run before this true time
	asleep  bool          // it is stopped because the machine sleeps
	cut     time.Duration // it does not reach the store before this true time
	life    int           // how often the process has died
}

func newHost(w *world, name string) host {
	h := host{w: w, name: name, rng: w.stream("host " + name)}
	h.base = int64(upTo(h.rng, time.Hour))
	h.boot.shows = h.base
	h.ppm = h.rng.Int64N(2*mostSkew+1) - mostSkew
	h.boot.ppm, h.mono.ppm = h.ppm, h.ppm
	return h
}

// mostSkew is how fast or slow a client's clock may be, in parts per million.
const mostSkew = 50_000

// Now returns the time on the process's clock. It implements clock.Clock.
func (h *host) Now() clock.Instant {
	if h.w.mutant.is("monotonic-clock") {
		return instant(h.base + h.mono.at(h.w.now))
	}
	return instant(h.boot.at(h.w.now))
}

// Timer must not be called: simulated processes set timers on the agenda.
func (h *host) Timer(time.Duration) clock.Timer { panic("sim: a timer of its own") }

// truth returns the true time at which the boot clock shows an instant.
func (h *host) truth(i instant) time.Duration { return h.boot.when(int64(i)) }

// soon runs do at a true time. If the process is stopped then, do runs as soon
// as it goes on. If the process has died by then, do does not run.
func (h *host) soon(at time.Duration, do func()) { h.within(h.life, at, do) }

// within is like soon, for a given life of the process.
func (h *host) within(life int, at time.Duration, do func()) {
	var try func()
	try = func() {
		switch {
		case h.life != life:
		case h.halted():
			h.w.at(max(h.stopped, h.w.now+1), try)
		default:
			do()
		}
	}
	h.w.at(at, try)
}

// timer runs do when the monotonic clock has advanced by d.
func (h *host) timer(d time.Duration, do func()) {
	life, due := h.life, h.mono.at(h.w.now)+int64(max(d, 0))
	var try func()
	try = func() {
		switch {
		case h.life != life:
		case h.halted():
			h.w.at(max(h.stopped, h.w.now+1), try)
		case h.mono.at(h.w.now) < due: // the machine slept, or the clock's rate changed
			h.w.at(h.mono.when(due), try)
		default:
			do()
		}
	}
	h.w.at(h.mono.when(due), try)
}

// stop pauses the process for a while.
func (h *host) stop(d time.Duration) { h.stopped = max(h.stopped, h.w.now+d) }

// sleep pauses the process and its monotonic clock.
func (h *host) sleep(d time.Duration) {
	h.stop(d)
	if h.asleep {
		return
	}
	h.asleep = true
	h.mono.pace(h.w.now, stopped)
	var wake func()
	wake = func() {
		if h.w.now < h.stopped {
			h.w.at(h.stopped, wake)
			return
		}
		h.wake()
	}
	h.w.at(h.stopped, wake)
}

// wake restarts the monotonic clock.
func (h *host) wake() {
	if h.asleep {
		h.asleep = false
		h.mono.pace(h.w.now, h.ppm)
	}
}

// halted reports whether the process is stopped or asleep.
func (h *host) halted() bool { return h.asleep || h.w.now < h.stopped }

// pace changes the rate of the host's clocks.
func (h *host) pace(ppm int64) {
	h.ppm = ppm
	h.boot.pace(h.w.now, ppm)
	if !h.asleep {
		h.mono.pace(h.w.now, ppm)
	}
}
