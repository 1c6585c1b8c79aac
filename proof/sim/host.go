package sim

import (
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// host is a machine with one process on it. Its boot clock always goes, its monotonic clock, by which timers run, stands still in suspend.
type host struct {
	w    *world
	name string
	rng  *rand.Rand
	boot dial
	mono dial
	base int64 // what the boot clock showed first
	ppm  int64 // by which both are fast

	stopped time.Duration // nothing is noticed before this true time
	asleep  bool          // and that because the machine sleeps
	cut     time.Duration // nothing gets through to the store and back before this true time
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

// mostSkew is by how much a client's clock may be fast or slow, in parts per million.
const mostSkew = 50_000

// Now is what the process reads from its clock; it is a method of clock.Clock.
func (h *host) Now() clock.Instant {
	if h.w.mutant.is("monotonic-clock") {
		return instant(h.base + h.mono.at(h.w.now))
	}
	return instant(h.boot.at(h.w.now))
}

// Timer is not for simulated processes: they are told of time by the agenda.
func (h *host) Timer(time.Duration) clock.Timer { panic("sim: a timer of its own") }

// truth is when the boot clock shows an instant.
func (h *host) truth(i instant) time.Duration { return h.boot.when(int64(i)) }

// soon does something at a true time, or when the process goes on after that, unless it has died by then.
func (h *host) soon(at time.Duration, do func()) { h.within(h.life, at, do) }

// within does something at a true time, as soon does, in one of the lives of the process.
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

// timer does something when the process's own time has advanced by d.
func (h *host) timer(d time.Duration, do func()) {
	life, due := h.life, h.mono.at(h.w.now)+int64(max(d, 0))
	var try func()
	try = func() {
		switch {
		case h.life != life:
		case h.halted():
			h.w.at(max(h.stopped, h.w.now+1), try)
		case h.mono.at(h.w.now) < due: // it has slept, or its pace has changed
			h.w.at(h.mono.when(due), try)
		default:
			do()
		}
	}
	h.w.at(h.mono.when(due), try)
}

// stop holds the process up for a while.
func (h *host) stop(d time.Duration) { h.stopped = max(h.stopped, h.w.now+d) }

// sleep is a stop during which timers stand still.
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

// wake lets the monotonic clock go on.
func (h *host) wake() {
	if h.asleep {
		h.asleep = false
		h.mono.pace(h.w.now, h.ppm)
	}
}

// halted reports whether the process notices nothing.
func (h *host) halted() bool { return h.asleep || h.w.now < h.stopped }

// pace changes the rate of the host's clocks.
func (h *host) pace(ppm int64) {
	h.ppm = ppm
	h.boot.pace(h.w.now, ppm)
	if !h.asleep {
		h.mono.pace(h.w.now, ppm)
	}
}
