package clock

import (
	"math"
	"sync"
	"time"
)

// Never is an instant that does not come.
const Never Instant = math.MaxInt64

// maxSleep is the longest sleep of an Alarm: timers stand still while the
// machine is suspended.
const maxSleep = time.Second

// LeastPause is the shortest delay of a timer that counts as a pause of the
// process. Schedulers cause shorter ones all the time.
const LeastPause = 100 * time.Millisecond

// Alarm calls a function at the time it is set to, on one goroutine. The
// goroutine ends after maxSleep without a set time. So several short uses in a
// row do not start it each time.
type Alarm struct {
	clk  Clock
	tick func()
	late func(time.Duration)

	mu      sync.Mutex
	at      Instant       // when tick must be called
	wakes   Instant       // when the goroutine wakes up
	running bool          // the goroutine exists
	awake   bool          // the goroutine is about to look at the time
	stopped bool          // the goroutine ends as soon as no time is set
	poke    chan struct{} // wakes the goroutine; has room for one
	done    chan struct{} // closed when the goroutine has ended
}

// NewAlarm makes an alarm that calls tick. It may call tick too early, or
// twice. If it wakes up later than it should by LeastPause or more, it calls
// late with the delay: the process was stopped or starved, or the machine was
// suspended.
func NewAlarm(clk Clock, tick func(), late func(time.Duration)) *Alarm {
	return &Alarm{clk: clk, tick: tick, late: late, at: Never, poke: make(chan struct{}, 1)}
}

// Set sets the time of the next call of tick, and replaces the time set before.
// Never means no call. tick may call Set.
func (a *Alarm) Set(now, at Instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = at
	switch {
	case a.running:
		over := a.stopped && at == Never
		late := at != Never && now >= a.wakes // its timer has stood still during a suspend
		if !a.awake && (at < a.wakes || over || late) {
			a.awake = true
			a.poke <- struct{}{}
		}
	case at != Never:
		a.running, a.awake, a.done = true, true, make(chan struct{})
		go a.run(a.done)
	}
}

// Stop lets the goroutine end as soon as no time is set. It returns a channel
// that is closed when the goroutine has ended.
func (a *Alarm) Stop() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if !a.running {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	if !a.awake {
		a.awake = true
		a.poke <- struct{}{}
	}
	return a.done
}

func (a *Alarm) run(done chan struct{}) {
	defer close(done)
	for idle := false; ; {
		a.tick()
		now := a.clk.Now()
		a.mu.Lock()
		if a.at == Never && (idle || a.stopped) {
			a.running = false
			a.mu.Unlock()
			return
		}
		idle = a.at == Never
		sleep := min(maxSleep, a.at.Sub(now))
		wakes := now.Add(sleep)
		a.wakes, a.awake = wakes, sleep <= 0
		a.mu.Unlock()
		if sleep > 0 && a.sleep(sleep) {
			idle = false
		}
		if late := a.clk.Now().Sub(wakes); late >= LeastPause {
			a.late(late)
		}
	}
}

// sleep sleeps for d, or until somebody sends a poke. It reports whether
// somebody did.
func (a *Alarm) sleep(d time.Duration) (poked bool) {
	timer := a.clk.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-a.poke:
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.awake { // somebody sends a poke at this moment
		<-a.poke
		return true
	}
	a.awake = true
	return false
}
