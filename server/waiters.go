package server

import (
	"sync"

	"github.com/croft-dev/croft/tenure"
)

// waiters counts the clients of this server that wait for each key. The store
// sees one client, the server, and cannot tell.
type waiters struct {
	mu   sync.Mutex // guards keys
	keys map[string]int
}

// enter counts a client that waits for a key, until leave is called.
func (w *waiters) enter(key string) (leave func()) {
	w.add(key, 1)
	return func() { w.add(key, -1) }
}

func (w *waiters) add(key string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[string]int{}
	}
	if w.keys[key] += n; w.keys[key] == 0 {
		delete(w.keys, key)
	}
}

// awaited reports whether somebody waits for the key that a request has freed.
// The client that released it then lets others try first.
func (w *waiters) awaited(q tenure.Request, err error) bool {
	if q.Verb != tenure.Release || err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys[q.Key] > 0
}
