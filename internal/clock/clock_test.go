package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSystemClockGoesForwardAndItsTimersFire(t *testing.T) {
	c := System()
	before := c.Now()
	timer := c.Timer(time.Millisecond)
	defer timer.Stop()
	<-timer.C()
	if passed := c.Now().Sub(before); passed < time.Millisecond {
		t.Errorf("a timer of 1ms fired after %s of elapsed time", passed)
	}
}

func TestReadingTheSystemClockAllocatesNothing(t *testing.T) {
	c := System()
	if n := testing.AllocsPerRun(100, func() { c.Now() }); n != 0 {
		t.Errorf("%v allocations a reading, want none: it is read for every lease", n)
	}
}

func TestTimeThatTheWallClockGainsIsTimeAsleep(t *testing.T) {
	const s = time.Second
	cases := []struct {
		name            string
		monotonic, wall []time.Duration
		want            []time.Duration
	}{
		{"both go on", []time.Duration{1 * s, 2 * s}, []time.Duration{1 * s, 2 * s}, []time.Duration{1 * s, 2 * s}},
		{"a sleep of an hour", []time.Duration{1 * s, 2 * s}, []time.Duration{1 * s, 3602 * s}, []time.Duration{1 * s, 3602 * s}},
		{"two sleeps", []time.Duration{1 * s, 2 * s}, []time.Duration{11 * s, 32 * s}, []time.Duration{11 * s, 32 * s}},
		{"set back, then a sleep of the same length", []time.Duration{1 * s, 2 * s}, []time.Duration{-9 * s, 2 * s}, []time.Duration{1 * s, 12 * s}},
		{"set back", []time.Duration{1 * s, 2 * s}, []time.Duration{-9 * s, -8 * s}, []time.Duration{1 * s, 2 * s}},
		{"two readings of one moment differ a little", []time.Duration{1 * s, 2 * s, 3 * s}, []time.Duration{1*s + noise/2, 2*s - noise/4, 3*s + noise/2}, []time.Duration{1 * s, 2 * s, 3 * s}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newWallGain()
			for i := range c.monotonic {
				if got := f.fold(c.monotonic[i], c.wall[i]); got != Instant(c.want[i]) {
					t.Errorf("reading %d: %s, want %s", i, time.Duration(got), c.want[i])
				}
			}
		})
	}
}

func TestWallAndMonotonicAreReadFromOneMoment(t *testing.T) {
	f := newWallGain()
	if got, since := f.now(f.start.Add(time.Minute)), time.Minute; got != Instant(since) {
		t.Errorf("a minute after the start it is %s", time.Duration(got))
	}
}

func TestSuspendPassesTimeAndFiresNoTimer(t *testing.T) {
	fired := func(timer Timer) bool {
		select {
		case <-timer.C():
			return true
		default:
			return false
		}
	}
	t.Run("manual", func(t *testing.T) {
		m := NewManual(5)
		timer := m.Timer(time.Minute)
		m.Suspend(time.Hour)
		if fired(timer) {
			t.Error("a timer fired during suspend")
		}
		if got := m.Now().Sub(5); got != time.Hour {
			t.Errorf("%s have passed, want 1h", got)
		}
		m.Advance(59 * time.Second)
		if fired(timer) {
			t.Error("the timer fired early")
		}
		stopped := m.Timer(time.Second)
		stopped.Stop()
		m.Advance(time.Second)
		if !fired(timer) {
			t.Error("the timer did not fire in the process's own time")
		}
		if fired(stopped) {
			t.Error("a stopped timer fired")
		}
		if !fired(m.Timer(-1)) {
			t.Error("a timer that is due at once did not fire")
		}
	})
	t.Run("process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := NewProcess()
			timer := p.Timer(time.Minute)
			p.Suspend(time.Hour)
			time.Sleep(59 * time.Second)
			if fired(timer) {
				t.Error("a timer fired during suspend")
			}
			if got := time.Duration(p.Now()); got != time.Hour+59*time.Second {
				t.Errorf("it is %s", got)
			}
			time.Sleep(2 * time.Second)
			if !fired(timer) {
				t.Error("the timer did not fire in the process's own time")
			}
		})
	})
}
