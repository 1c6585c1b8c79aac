package sim

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// Soaking runs many seeds of one profile.
type Soaking struct {
	Profile string
	First   uint64 // the first seed
	Seeds   int
	Ops     int            // as in a Case
	Workers int            // how many seeds at a time; 0 means 1
	Tick    func(done int) // called after each seed, one call at a time; may be nil
}

// Soak is the result of many seeds.
type Soak struct {
	Profile  string
	First    uint64
	Seeds    int
	Ops      int64 // requests in all seeds
	LeastOps int   // the least in one seed
	Events   int64
	Faults   int64
	Broken   []*Result // the first few, the lowest seeds first
	// Missing are the sights that the profile must show and did not. It is
	// empty if a law was broken, or if fewer seeds than Enough were run.
	Missing  []Sight
	Coverage Coverage
	Took     time.Duration
}

const (
	// Enough is the number of seeds that show everything a profile can.
	Enough = 1000
	// mostBroken is the number of broken seeds that ends a soak.
	mostBroken = 3
)

// Run runs the seeds. The profile must exist.
func (s Soaking) Run() *Soak {
	began := time.Now()
	sum := &Soak{Profile: s.Profile, First: s.First, Coverage: Coverage{}}
	var mu sync.Mutex
	next := 0
	take := func(done *Result) (n int, more bool) {
		mu.Lock()
		defer mu.Unlock()
		if done != nil {
			sum.add(done)
			if s.Tick != nil {
				s.Tick(sum.Seeds)
			}
		}
		n, next = next, next+1
		return n, n < s.Seeds && len(sum.Broken) < mostBroken
	}
	var all sync.WaitGroup
	for range max(s.Workers, 1) {
		all.Go(func() {
			var r *Result
			for {
				n, more := take(r)
				if !more {
					return
				}
				r = Run(Case{Profile: s.Profile, Seed: s.First + uint64(n), Ops: s.Ops}, false)
			}
		})
	}
	all.Wait()
	slices.SortFunc(sum.Broken, func(a, b *Result) int { return int(a.Case.Seed) - int(b.Case.Seed) })
	if len(sum.Broken) == 0 && sum.Seeds >= Enough {
		sum.Missing = sum.Coverage.Missing(profileOf(s.Profile).Expected())
	}
	sum.Took = time.Since(began)
	return sum
}

func (s *Soak) add(r *Result) {
	s.Seeds++
	s.Ops += int64(r.Ops)
	s.Events += int64(r.Events)
	s.Faults += int64(len(r.Fired))
	s.Coverage.Add(r.Coverage)
	if r.Broken != nil {
		s.Broken = append(s.Broken, r)
		return
	}
	if s.LeastOps == 0 || r.Ops < s.LeastOps {
		s.LeastOps = r.Ops
	}
}

// MarshalJSON writes the figures, and the coverage by kind and name.
func (s *Soak) MarshalJSON() ([]byte, error) {
	coverage := map[string]map[string]int{}
	for sight, n := range s.Coverage {
		if coverage[sight.Kind] == nil {
			coverage[sight.Kind] = map[string]int{}
		}
		coverage[sight.Kind][sight.Name] = n
	}
	return json.Marshal(map[string]any{
		"profile": s.Profile, "first_seed": s.First, "seeds": s.Seeds, "requests": s.Ops,
		"least_requests": s.LeastOps, "events": s.Events, "faults": s.Faults,
		"broken": s.Broken, "missing": s.Missing, "coverage": coverage, "seconds": s.Took.Seconds(),
	})
}
