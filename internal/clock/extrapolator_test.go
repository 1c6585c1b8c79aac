package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// sleeping is an extrapolator whose clock counts its readings, and can sleep
// like a machine: Go's monotonic clock does not notice it, the wall clock does.
type sleeping struct {
	*extrapolator
	start time.Time
	slept time.Duration
	reads int
	gone  bool
}

func newSleeping() *sleeping {
	s := &sleeping{start: time.Now()}
	s.extrapolator = newExtrapolator(func() (Instant, bool) {
		s.reads++
		return Instant(time.Since(s.start) + s.slept), !s.gone
	})
	return s
}

// moveWall simulates a move of the wall clock against the monotonic one. A
// time.Time with both cannot be made, so it moves the lead of the anchor
// instead.
func (s *sleeping) moveWall(d time.Duration) {
	if f := s.last.Load(); f != nil {
		moved := *f
		moved.lead -= d
		s.last.Store(&moved)
	}
}

func (s *sleeping) want(t *testing.T, what string, reads int) {
	t.Helper()
	got, ok := s.now(time.Now())
	if want := Instant(time.Since(s.start) + s.slept); !ok || got != want {
		t.Errorf("%s: it is %v, want %v", what, time.Duration(got), time.Duration(want))
	}
	if s.reads != reads {
		t.Errorf("%s: the clock was read %d times, want %d", what, s.reads, reads)
	}
}

func TestExtrapolationAgreesWithTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeping()
		s.want(t, "at first", 1)
		time.Sleep(anchorLasts / 2)
		s.want(t, "soon after", 1)
		time.Sleep(anchorLasts / 2)
		s.want(t, "when the anchor is old", 2)

		s.slept += time.Minute // while the anchor is in use
		s.moveWall(time.Minute)
		s.want(t, "after a sleep", 3)
		s.want(t, "and then", 3)

		s.slept += 2 * anchorWithin
		s.moveWall(2 * anchorWithin)
		s.want(t, "after the shortest of sleeps", 4)

		s.moveWall(-time.Hour)
		s.want(t, "after the wall clock was set back", 5)
	})
}

func TestAClockThatCannotBeReadIsNotExtrapolated(t *testing.T) {
	s := newSleeping()
	s.gone = true
	for range 2 {
		if got, ok := s.now(time.Now()); ok {
			t.Errorf("it is %v by a clock that cannot be read", time.Duration(got))
		}
	}
}

// TestAReadingThatTookLongIsNotExtrapolated: if the thread was halted between
// reading the two clocks, their times do not belong together.
func TestAReadingThatTookLongIsNotExtrapolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		halt := time.Millisecond
		start := time.Now()
		r := newExtrapolator(func() (Instant, bool) {
			at := Instant(time.Since(start))
			time.Sleep(halt)
			return at, true
		})
		if _, ok := r.now(time.Now()); !ok || r.last.Load() != nil {
			t.Error("the reading was kept to extrapolate from")
		}
		halt = 0
		if _, ok := r.now(time.Now()); !ok || r.last.Load() == nil {
			t.Error("a quick reading was not kept")
		}
	})
}

func TestExtrapolatedAndReadSystemClocksAgree(t *testing.T) {
	c := System()
	for range 1000 {
		before := c.Now()
		if now := c.Now(); now < before.Add(-2*anchorWithin) {
			t.Fatalf("it went back by %s", before.Sub(now))
		}
	}
}
