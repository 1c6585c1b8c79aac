package clock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnAlarmTicksWhenItIsWanted: at the time it was last set to, and within a
// second after a suspend, during which timers stand still. The suspend, and
// nothing else, makes it say that it was late.
func TestAnAlarmTicksWhenItIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess()
		var ticks atomic.Int64
		var late []time.Duration
		var a *Alarm
		at := Never
		a = NewAlarm(p, func() {
			if now := p.Now(); now >= at {
				ticks.Add(1)
				at = Never
				a.Set(now, Never)
			}
		}, func(d time.Duration) { late = append(late, d) })
		set := func(d time.Duration) {
			at = p.Now().Add(d)
			a.Set(p.Now(), at)
		}
		want := func(n int64, what string) {
			t.Helper()
			synctest.Wait()
			if got := ticks.Load(); got != n {
				t.Errorf("%s: %d ticks, want %d", what, got, n)
			}
		}
		set(10 * time.Second)
		time.Sleep(9 * time.Second)
		want(0, "before its time")
		set(100 * time.Millisecond) // sooner than the alarm would look again
		time.Sleep(100 * time.Millisecond)
		want(1, "at its time")
		set(time.Hour)
		time.Sleep(time.Second)
		p.Suspend(2 * time.Hour)
		time.Sleep(time.Second)
		want(2, "a second after a suspend")
		set(-time.Second)
		want(3, "at once")
		<-a.Stop()
		if len(late) != 1 || late[0] < 2*time.Hour-time.Second || late[0] > 2*time.Hour+time.Second {
			t.Errorf("late by %v, want once by two hours", late)
		}
	})
}

// TestAnAlarmLeavesNoGoroutine: if it was not set for a second, and after Stop.
// Otherwise the bubble would not end.
func TestAnAlarmLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess()
		var a *Alarm
		a = NewAlarm(p, func() { a.Set(p.Now(), Never) }, func(time.Duration) {})
		a.Set(p.Now(), p.Now().Add(time.Second))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		a.mu.Lock()
		if a.running {
			t.Error("the goroutine runs for nothing")
		}
		a.mu.Unlock()
		a.Set(p.Now(), p.Now().Add(time.Second))
		time.Sleep(time.Second)
		<-a.Stop()
		<-a.Stop()
	})
}
