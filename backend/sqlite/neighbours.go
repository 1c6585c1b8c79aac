package sqlite

import (
	"sync"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// neighbours are the stores of this process in which somebody waits or listens,
// by their files. They need not look to find what another of them has changed.
// A store counts how often it has settled: it may come again before it has
// gone.
var neighbours = struct {
	mu sync.RWMutex
	on map[string]map[*watches]int
}{on: map[string]map[*watches]int{}}

// settle makes a store known to the others on the same file, until the returned
// function is called.
func (w *watches) settle(file string) (leave func()) {
	n := &neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.on[file] == nil {
		n.on[file] = map[*watches]int{}
	}
	n.on[file][w]++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.on[file][w]--; n.on[file][w] == 0 {
			delete(n.on[file], w)
		}
		if len(n.on[file]) == 0 {
			delete(n.on, file)
		}
	}
}

// others calls do with every other store on a file.
func (w *watches) others(file string, do func(*watches)) {
	n := &neighbours
	n.mu.RLock()
	defer n.mu.RUnlock()
	for other := range n.on[file] {
		if other != w {
			do(other)
		}
	}
}

// announce wakes those who wait for what a transaction has changed, and tells
// of operators' acts, here and in the other stores of this process.
func (s *Store) announce(file string, passed []*entry, acted []string) {
	if len(passed) == 0 && len(acted) == 0 {
		return
	}
	tell := func(w *watches) {
		for _, e := range passed {
			w.note(e.head.Key, handsOf(&e.head))
			w.hub.Changed(e.head.Key)
		}
		for _, key := range acted {
			w.hub.Acted(acts, key)
		}
	}
	tell(s.watch)
	s.watch.others(file, tell)
}

// awaited says of releases that somebody waits in another store of this
// process. Of other processes nothing is known.
func (s *Store) awaited(file string, requests []tenure.Request, answers []store.Answer) {
	s.watch.others(file, func(w *watches) {
		for i := range requests {
			released := requests[i].Verb == tenure.Release && answers[i].Err == nil
			if released && w.hub.Watches(requests[i].Key) {
				answers[i].Awaited = true
			}
		}
	})
}
