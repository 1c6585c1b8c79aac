package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// sleeping is a reckoner whose clock counts its readings, and can sleep like a
// machine: Go's monotonic clock does not notice it, the wall clock does.
type sleeping struct {
	*reckoner
	start time.Time
	slept time.Duration
	reads int
	gone  bool
}

func newSleeping() *sleeping {
	s := &sleeping{start: time.Now()}
	s.reckoner = newReckoner(func() (Instant, bool) {
		s.reads++
		return Instant(time.Since(s.start) + s.slept), !s.gone
	})
	return s
}

// moveWall simulates a move of the wall clock against the monotonic one. A
// time.Time with both cannot be made, so it moves the lead of the fix instead.
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

func TestReckoningAgreesWithTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleeping()
		s.want(t, "at first", 1)
		time.Sleep(fixLasts / 2)
		s.want(t, "soon after", 1)
		time.Sleep(fixLasts / 2)
		s.want(t, "when the fix is old", 2)

		s.slept += time.Minute // while the fix is in use
		s.moveWall(time.Minute)
		s.want(t, "after a sleep", 3)
		s.want(t, "and then", 3)

		s.slept += 2 * fixWithin
		s.moveWall(2 * fixWithin)
		s.want(t, "after the shortest of sleeps", 4)

		s.moveWall(-time.Hour)
		s.want(t, "after the wall clock was set back", 5)
	})
}

func TestAClockThatCannotBeReadIsNotReckonedOn(t *testing.T) {
	s := newSleeping()
	s.gone = true
	for range 2 {
		if got, ok := s.now(time.Now()); ok {
			t.Errorf("it is %v by a clock that cannot be read", time.Duration(got))
		}
	}
}

// TestAReadingThatTookLongIsNotReckonedOnFrom: if the thread was halted between
// reading the two clocks, their times do not belong together.
func TestAReadingThatTookLongIsNotReckonedOnFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		halt := time.Millisecond
		start := time.Now()
		r := newReckoner(func() (Instant, bool) {
			at := Instant(time.Since(start))
			time.Sleep(halt)
			return at, true
		})
		if _, ok := r.now(time.Now()); !ok || r.last.Load() != nil {
			t.Error("the reading was kept to reckon on from")
		}
		halt = 0
		if _, ok := r.now(time.Now()); !ok || r.last.Load() == nil {
			t.Error("a quick reading was not kept")
		}
	})
}

func TestReckonedAndReadSystemClocksAgree(t *testing.T) {
	c := System()
	for range 1000 {
		before := c.Now()
		if now := c.Now(); now < before.Add(-2*fixWithin) {
			t.Fatalf("it went back by %s", before.Sub(now))
		}
	}
}
