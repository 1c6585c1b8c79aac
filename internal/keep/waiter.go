package keep

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// How often a key that is held is asked for.
const (
	PollFirst   = 25 * time.Millisecond  // at first; every further poll is twice as late
	PollMax     = time.Second            // at last; a request without an answer is sent again after as long
	PollHinted  = 250 * time.Millisecond // at first, while the store sends hints: then a poll is for those that are lost
	PollWatched = 5 * time.Second        // at last, while it does
	PollSettled = 10 * time.Second       // at last, when nobody holds the key and time must pass, or an operator free it
)

// Courtesy is how long a key is left to others who wait for it: time for a hint to reach them, and for them to ask.
const Courtesy = time.Millisecond

// Patience is how long a Waiter waits for what.
type Patience struct {
	// For is how long a key that is held is waited for; 0 is one try.
	For time.Duration
	// After is how long to leave the key to others before asking for it. Hints do not shorten it, as they may be the echo of what this very process has done; the end of
	// For does.
	After time.Duration
	// Resolve is how long at least an unknown outcome is pursued before the caller is told of it.
	Resolve time.Duration
	// Call is how long a request may be on its way before it certainly takes no effect any more.
	Call time.Duration
	// Terms are those of the lease asked for.
	Terms Terms
}

// Waiter asks for one key until it is granted, refused for longer than the caller waits, or abandoned. When it ends while a request's
// outcome is unknown, it goes on in the background until that is known and what was granted is released.
type Waiter struct {
	patience Patience
	random   func() float64 // from 0 up to 1
	phase    phase
	end      clock.Instant // of waiting for a held key
	limit    clock.Instant // of pursuing an unknown outcome

	next     clock.Instant // when to ask again, if nothing happens before
	due      clock.Instant // when to do so at the latest, whether or not hints come: the key lapses, or the caller's patience ends
	poll     time.Duration
	woken    bool
	watching bool // Watch was asked for
	watched  bool // hints come

	attempt int           // the newest request's number
	asked   clock.Instant // when it was sent
	open    bool          // it has no answer
	since   int           // the number of the first request with the present secret
	last    int           // the newest Acquire's number; later ones are Releases
	lastAsk clock.Instant // when that was sent

	first   clock.Instant // when the request was first sent since it was last refused
	sends   int           // how often since then
	tainted bool          // a copy of it may have been, or may yet be, granted
	burned  int           // secrets in a row that turned out to be used up

	resolveEnd clock.Instant
	err        error // the last answer that was no grant
}

type phase int

const (
	asking phase = iota
	resolving
	over
)

// Wishes are what a Waiter wants done, and what it has come to.
type Wishes struct {
	Ask     bool // send an Acquire now, with the secret it was sent with before,
	Fresh   bool // or with a new one
	Again   bool // which is not known to have arrived the last time
	Release bool // send a Release of that secret now
	Attempt int  // the number of the request to send
	Watch   bool // hints would help from now on

	Granted  bool          // the last answer is a grant,
	Deadline clock.Instant // good until here
	Refused  bool          // the key cannot be had in time: Err says why
	Unknown  bool          // it is not known whether the key was granted, and the caller is told so: Err says why
	Err      error

	Background bool // the caller is free to go, but the machine must be stepped on until Done
	Resolved   Resolution
	Done       bool // nothing is left to do
}

// Resolution says what became of an unknown outcome that nobody waited for any more.
type Resolution string

// The resolutions.
const (
	WasGranted Resolution = "released" // it had been granted, and was released
	WasNot     Resolution = "never"    // it had not been granted, or its term was over
	WasLeft    Resolution = "left"     // not known to the end: if it was granted, it has lapsed
)

// errNoAnswer stands for an answer that did not come, errTooOld for one that came too late.
var (
	errNoAnswer = store.Unknown(errors.New("the store has not answered in time; check that it can be reached"))
	errTooOld   = store.Unknown(errors.New("the key was granted too long ago to be of use; try again when that grant has lapsed"))
)

// NewWaiter begins a wait at now. The first Step asks, unless others go first.
func NewWaiter(p Patience, now clock.Instant, random func() float64) *Waiter {
	w := &Waiter{patience: p, random: random, poll: PollFirst} // no more than this, so that a caller can have it inlined, and keep it where it likes
	w.begin(now)
	return w
}

func (w *Waiter) begin(now clock.Instant) {
	p := &w.patience
	w.next, w.end = After(now, min(p.After, p.For)), After(now, p.For)
	w.limit = max(w.end, After(now, p.Resolve))
}

// Wake is when Step has something to do at the latest.
func (w *Waiter) Wake() clock.Instant {
	next := w.next
	if w.open {
		next = w.hung()
	}
	switch {
	case w.phase == over:
		return Never
	case w.phase == resolving:
		return min(next, w.resolveEnd)
	case w.sends > 0 && !w.open:
		return min(next, w.limit)
	}
	return next
}

// Step takes what has happened by now.
func (w *Waiter) Step(e Event, now clock.Instant) Wishes {
	switch w.phase {
	case asking:
		return w.ask(e, now)
	case resolving:
		return w.resolve(e, now)
	}
	return Wishes{}
}

func (w *Waiter) ask(e Event, now clock.Instant) Wishes {
	switch e := e.(type) {
	case Answered:
		if e.Attempt >= w.since { // older ones were made with a secret that is used up
			return w.answered(e, now)
		}
	case Abandoned:
		return w.leave(now, Wishes{Err: e.Err})
	case Woken:
		w.woken, w.poll = true, PollFirst
	case Watched:
		if w.watched = true; !e.Since { // what happened before the watch began was not told
			w.woken = true
		} else if w.sends == 0 && w.attempt > 0 { // it was refused
			w.next = min(After(now, w.pause(PollWatched)), w.due)
		}
	case Unwatched:
		w.watched = false
		w.next = min(w.next, After(now, w.pause(PollMax)))
	}
	hung := w.open && now >= w.hung()
	if w.sends > 0 && now >= w.limit && (!w.open || hung) {
		err := w.err
		if err == nil || w.open && !errors.Is(err, store.ErrUnknown) { // why an earlier copy came to nothing is better than no reason at all
			err = errNoAnswer
		}
		return w.leave(now, Wishes{Unknown: true, Err: err})
	}
	if hung {
		w.open, w.tainted, w.next = false, true, now
	}
	return w.send(now)
}

// send asks if it is time to.
func (w *Waiter) send(now clock.Instant) Wishes {
	if w.open || now < w.next && (!w.woken || w.attempt == 0) {
		return Wishes{}
	}
	fresh := w.attempt == 0 || w.burned > 0 && w.sends == 0
	w.woken = false
	w.attempt++
	w.asked, w.open = now, true
	w.last, w.lastAsk = w.attempt, now
	if fresh {
		w.since = w.attempt
	}
	if w.sends == 0 {
		w.first = now
	}
	w.sends++
	return Wishes{Ask: true, Fresh: fresh, Again: w.sends > 1, Attempt: w.attempt}
}

func (w *Waiter) answered(e Answered, now clock.Instant) Wishes {
	newest, err := e.Attempt == w.attempt, e.Answer.Err
	if err == nil {
		return w.granted(e, now)
	}
	var held *tenure.HeldError
	switch {
	case errors.As(err, &held):
		if w.open && !newest {
			w.tainted = true // a younger copy is on its way
		}
		w.open, w.err = false, err
		return w.held(held, now)
	case notOwned(e.Answer) != nil: // a copy was granted and is over: a secret is granted once
		w.open, w.err = false, err
		w.sends, w.tainted = 0, false
		w.burned++
		w.next = now
		if w.burned > 1 {
			w.next = After(now, w.pause(PollMax))
		}
		return w.send(now)
	case errors.Is(err, fence.ErrInvalid):
		w.open = w.open && !newest
		return w.leave(now, Wishes{Refused: true, Err: err})
	}
	w.tainted, w.err = true, err
	if newest {
		w.open = false
		w.next = After(now, w.pause(PollMax))
	}
	return w.ask(Tick{}, now)
}

// granted takes a grant, unless it was made so long ago that it gives no authority any more. Then the secret is asked with until the store calls it over.
func (w *Waiter) granted(e Answered, now clock.Instant) Wishes {
	first := e.Sent
	if w.sends > 1 {
		first = min(first, w.first) // any copy of it may have been the one that was granted
	}
	deadline := w.patience.Terms.Until(first, e.Sent, e.Answer)
	if now >= deadline.Add(-w.patience.Terms.Notice) {
		w.open, w.tainted, w.err = false, true, errTooOld
		w.next = After(now, w.pause(PollMax))
		return w.ask(Tick{}, now)
	}
	w.phase = over
	return Wishes{Granted: true, Deadline: deadline, Done: true}
}

// held takes a refusal: the request, as it was sent last, has certainly not been granted. An earlier copy that is still on its way may yet be, and the next answer then is about that grant; when it was first
// sent is not remembered for it, because the store says with every grant what is left of it, and Until counts that from the copy that was answered.
func (w *Waiter) held(held *tenure.HeldError, now clock.Instant) Wishes {
	w.sends, w.burned = 0, 0
	// A period ends when it ends: there is nothing to wait for if that is later. Anything else may end before its time.
	if now >= w.end || held.Why == tenure.WhyPeriod && After(now, held.Remaining()) > w.end {
		return w.leave(now, Wishes{Refused: true, Err: held})
	}
	most := PollMax
	switch {
	case held.Why == tenure.WhyHold || held.Why == tenure.WhyPeriod:
		most = PollSettled
	case w.watched:
		most = PollWatched
	}
	freed := After(now, max(held.Remaining(), 0)+time.Millisecond+Spread(PollFirst, 0, 1, w.random()))
	w.due = min(freed, w.end)
	w.next = min(After(now, w.pause(most)), w.due)
	wishes := w.send(now) // at once, if a hint came while the answer was on its way
	wishes.Watch = !w.watching
	w.watching = true
	return wishes
}

// pause is the time until the next poll, and doubles the one after it.
func (w *Waiter) pause(most time.Duration) time.Duration {
	if w.watched {
		w.poll = max(w.poll, PollHinted)
	}
	d := min(w.poll, most)
	w.poll = min(2*w.poll, PollSettled)
	return Spread(d, 0.75, 1, w.random())
}

// hung is when a request without an answer is taken for lost.
func (w *Waiter) hung() clock.Instant { return After(w.asked, PollMax) }
