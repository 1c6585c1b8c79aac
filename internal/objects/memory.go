package objects

import (
	"sync"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// Memory is what a client remembers of its own last writes, so that a renewal or a release need not read before it writes. It is safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	known map[string]memory
}

type memory struct {
	record  tenure.Record
	version cas.Version
}

// mostKnown bounds what is remembered; what is not costs one read.
const mostKnown = 16384

// Keep remembers the record that was written to a key, and its version.
func (m *Memory) Keep(rec tenure.Record, version cas.Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]memory{}
	}
	if _, again := m.known[rec.Key]; !again && len(m.known) >= mostKnown {
		for key := range m.known { // any of them
			delete(m.known, key)
			break
		}
	}
	m.known[rec.Key] = memory{rec, version}
}

// Forget is for a key that has turned out to be another's.
func (m *Memory) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}

// Recall is what was kept of a key. The record's slices are not the caller's to change.
func (m *Memory) Recall(key string) (tenure.Record, cas.Version, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.known[key]
	return known.record, known.version, ok
}
