package sim

import (
	"sync"
	"sync/atomic"
	"time"
)

// Soak is a run of many seeds.
type Soak struct {
	Profile  string    `json:"profile"`
	First    uint64    `json:"first_seed"`
	Seeds    int       `json:"seeds"`
	Ops      int64     `json:"ops"`
	LeastOps int       `json:"least_ops"` // of any seed that was not cut short
	Events   int64     `json:"events"`
	Broken   []*Result `json:"broken,omitempty"` // at most a few, by seed
	Missing  []Sight   `json:"missing,omitempty"`
	Coverage Coverage  `json:"-"`
	Took     time.Duration
}

// mostBroken is how many broken seeds end a soak.
const mostBroken = 3

// Seeds runs seeds of a profile, on as many workers as are given. tick is called after each, by one at a time; it may be nil.
func Seeds(profile string, first uint64, seeds, workers int, tick func(done int)) *Soak {
	began := time.Now()
	s := &Soak{Profile: profile, First: first, Coverage: Coverage{}}
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range max(workers, 1) {
		all.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= seeds {
					return
				}
				r := Run(Case{Profile: profile, Seed: first + uint64(n)}, false)
				mu.Lock()
				s.add(r)
				if len(s.Broken) >= mostBroken {
					next.Store(int64(seeds))
				}
				if tick != nil {
					tick(s.Seeds)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if p, err := FindProfile(profile); err == nil && len(s.Broken) == 0 {
		s.Missing = s.Coverage.Missing(p.Expected())
	}
	s.Took = time.Since(began)
	return s
}

func (s *Soak) add(r *Result) {
	s.Seeds++
	s.Ops += int64(r.Ops)
	s.Events += int64(r.Events)
	s.Coverage.Add(r.Coverage)
	if r.Broken != nil {
		s.Broken = append(s.Broken, r)
		return
	}
	if s.LeastOps == 0 || r.Ops < s.LeastOps {
		s.LeastOps = r.Ops
	}
}
