package drill

import (
	"sync"
	"time"
)

// stall measures the longest time for which this process did not get to run. No client can end a lease in time on a machine that
// stands still: what is late by less than that proves nothing.
type stall struct {
	quit chan struct{}
	once sync.Once
	over chan struct{}
	most time.Duration
}

// stallTick is how closely it looks.
const stallTick = 5 * time.Millisecond

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
			s.most = max(s.most, now.Sub(last)-stallTick)
			last = now
		}
	}()
	return s
}

// stop returns the longest stall; none was watched for if s is nil.
func (s *stall) stop() time.Duration {
	if s == nil {
		return 0
	}
	s.once.Do(func() { close(s.quit) })
	<-s.over
	return s.most
}
