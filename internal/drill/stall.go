package drill

import (
	"sync"
	"time"
)

// stall measures for how long this process did not get to run. No client can
// end a lease in time on a machine that stands still. A delay shorter than that
// proves nothing.
type stall struct {
	quit chan struct{}
	once sync.Once
	over chan struct{}
	most time.Duration // the longest stall
	lost []lost        // the latest ones
}

// lost is time in which nothing ran.
type lost struct {
	until time.Time
	d     time.Duration
}

const (
	// stallTick is how often it looks.
	stallTick = 5 * time.Millisecond
	// stallSpan is how long a lease takes at most to end on a busy machine,
	// once its time is up. A timer, two goroutines and the goroutine that takes
	// the time wait for each other. A stall may delay each of them.
	stallSpan = time.Second
)

func watchStall() *stall {
	s := &stall{quit: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(s.over)
		tick := time.NewTicker(stallTick)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-s.quit:
				return
			case <-tick.C:
			}
			now := time.Now()
			s.add(lost{now, now.Sub(last) - stallTick})
			last = now
		}
	}()
	return s
}

func (s *stall) add(l lost) {
	if l.d < stallTick {
		return
	}
	s.most = max(s.most, l.d)
	s.lost = append(s.lost, l)
	for l.until.Sub(s.lost[0].until) > stallSpan {
		s.lost = s.lost[1:]
	}
}

// stop returns the longest stall, or the sum of those in the last second if
// that is more. It returns 0 if s is nil.
func (s *stall) stop() time.Duration {
	if s == nil {
		return 0
	}
	s.once.Do(func() { close(s.quit) })
	<-s.over
	var recent time.Duration
	for _, l := range s.lost {
		if time.Since(l.until) < stallSpan {
			recent += l.d
		}
	}
	return max(s.most, recent)
}
