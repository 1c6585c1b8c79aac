package steward

import "time"

const (
	// breakAfter is how many deliveries in a row must fail before a destination
	// is paused.
	breakAfter = 5
	// leastBreak is the first pause. It doubles with each trial that fails, up
	// to mostBreak.
	leastBreak = time.Second
	mostBreak  = time.Minute
	// mostAsked bounds the pause that a receiver can ask for.
	mostAsked = time.Hour
)

// breaker pauses the deliveries to a destination that fails. After the pause it
// lets one through, as a trial. It has no clock: callers pass the time.
type breaker struct {
	failures int           // in a row
	pause    time.Duration // the last one
	began    time.Time     // when the last pause began
	until    time.Time     // when it ends
}

// allows returns how many deliveries may be in flight at now, of most.
func (b *breaker) allows(now time.Time, most int) int {
	switch {
	case now.Before(b.until):
		return 0
	case b.failures >= breakAfter:
		return 1
	}
	return most
}

// succeeded notes that a delivery reached the receiver, whether or not the
// receiver took it.
func (b *breaker) succeeded(now time.Time) {
	b.failures, b.pause = 0, 0
	if b.until.After(now) && b.until.Sub(b.began) <= mostBreak {
		b.until = now
	}
}

// failed notes that a delivery, begun at begun, did not reach the receiver. It
// reports whether that begins a pause.
func (b *breaker) failed(begun, now time.Time) bool {
	if b.failures++; b.failures < breakAfter || now.Before(b.until) {
		return false
	}
	if b.pause > 0 && begun.Before(b.began) {
		return false // sent before the pause: it says nothing of the receiver since then
	}
	b.pause = min(max(2*b.pause, leastBreak), mostBreak)
	b.began, b.until = now, now.Add(b.pause)
	return true
}

// asked notes that the receiver asks for a pause. It reports whether that
// begins or prolongs one.
func (b *breaker) asked(now time.Time, d time.Duration) bool {
	until := now.Add(min(d, mostAsked))
	if d <= 0 || !until.After(b.until) {
		return false
	}
	b.began, b.until = now, until
	return true
}
