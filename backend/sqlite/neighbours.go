package sqlite

import (
	"sync"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// neighbours are the stores of this process that have waiters or listeners, by
// their files. A store tells its neighbours of changes, so they need not poll
// for them. The number counts calls of addNeighbour: a new poller of the same
// store may begin before the old one has ended.
var neighbours = struct {
	mu sync.RWMutex
	on map[string]map[*watches]int
}{on: map[string]map[*watches]int{}}

// addNeighbour adds a store to the neighbours on a file, until the returned
// function is called.
func (w *watches) addNeighbour(file string) (leave func()) {
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

// announce wakes the waiters for keys that have changed hands, and tells
// listeners of operators' acts. It does so here and in the neighbours.
func (s *Store) announce(file string, passed []*entry, acted []string) {
	if len(passed) == 0 && len(acted) == 0 {
		return
	}
	tell := func(w *watches) {
		for _, e := range passed {
			w.note(e.head.Key, ownershipOf(&e.head))
			w.hub.Changed(e.head.Key)
		}
		for _, key := range acted {
			w.hub.Acted(acts, key)
		}
	}
	tell(s.watch)
	s.watch.others(file, tell)
}

// awaited sets Awaited in the answers to releases if a neighbour has a waiter
// for the key. It knows nothing of other processes.
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
