package sqlite

import (
	"sync"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// neighbours are the stores of this process in which somebody waits, by their files. They need not look to find what another of them has changed.
var neighbours = struct {
	mu sync.RWMutex
	on map[string]map[*watches]int // how often each has settled: the next may come before the last has gone
}{on: map[string]map[*watches]int{}}

// settle makes the waiters of a store known to the others on the same file, until the returned function is called.
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

// others calls do with the waiters of every other store on a file.
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
func (s *Store) announce(file string, passed []*entry, acts []string) {
	if len(passed) == 0 && len(acts) == 0 {
		return
	}
	tell := func(w *watches) {
		for _, e := range passed {
			w.wake(e.head.Key, handsOf(&e.head))
		}
		for _, key := range acts {
			w.acts.Tell(key)
		}
	}
	tell(&s.watch)
	s.watch.others(file, tell)
}

// awaited says of releases that somebody waits in another store of this process. Of other processes nothing is known.
func (s *Store) awaited(file string, requests []tenure.Request, answers []store.Answer) {
	s.watch.others(file, func(w *watches) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range requests {
			if requests[i].Verb == tenure.Release && answers[i].Err == nil && w.keys[requests[i].Key] != nil {
				answers[i].Awaited = true
			}
		}
	})
}
