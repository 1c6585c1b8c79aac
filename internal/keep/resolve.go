package keep

import (
	"errors"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/tenure"
)

// leave ends the caller's part in the wait. If a grant may have come of it that nobody knows of, the machine goes on in the background.
func (w *Waiter) leave(now clock.Instant, wishes Wishes) Wishes {
	if !w.open && !w.tainted {
		w.phase = over
		wishes.Done = true
		return wishes
	}
	w.phase = resolving
	lapse := w.patience.Terms.TTL + w.patience.Terms.Margin()
	w.resolveEnd = After(max(now, After(w.lastAsk, w.patience.Call)), lapse)
	w.poll, w.next = PollFirst, now
	background := w.resolve(Tick{}, now)
	wishes.Release, wishes.Attempt, wishes.Background = background.Release, background.Attempt, true
	return wishes
}

// resolve pursues what the caller has left behind. It releases, and does not ask again: a request that has not been granted so far is not to be.
func (w *Waiter) resolve(e Event, now clock.Instant) Wishes {
	if a, ok := e.(Answered); ok && a.Attempt >= w.since {
		if a.Attempt == w.attempt {
			w.open = false
		}
		if done := w.settle(a, now); done != "" {
			w.phase = over
			return Wishes{Resolved: done, Done: true}
		}
	}
	if w.open && now >= w.hung() {
		w.open, w.tainted, w.next = false, true, now
	}
	switch {
	case now >= w.resolveEnd:
		w.phase = over
		return Wishes{Resolved: WasLeft, Done: true}
	case w.open || now < w.next:
		return Wishes{}
	}
	w.attempt++
	w.asked, w.open = now, true
	return Wishes{Release: true, Attempt: w.attempt}
}

// settle reads an answer that nobody waits for, and says what became of the request if that is certain now.
func (w *Waiter) settle(a Answered, now clock.Instant) Resolution {
	err := a.Answer.Err
	refusal := notOwned(a.Answer)
	if a.Attempt <= w.last { // of an Acquire
		switch {
		case errors.Is(err, tenure.ErrHeld) && !w.tainted, errors.Is(err, fence.ErrInvalid) && !w.tainted, refusal != nil:
			return WasNot
		}
		w.tainted, w.next = true, now // granted, or not known: release it
		return ""
	}
	switch {
	case err == nil:
		return WasGranted
	case refusal != nil && refusal.Why != tenure.WhyUnknown:
		return WasNot
	case refusal != nil && a.Sent >= After(w.lastAsk, w.patience.Call):
		return WasNot // never granted, and no copy of it was on its way any more when this was asked
	}
	w.next = After(now, w.pause(PollMax))
	return ""
}
