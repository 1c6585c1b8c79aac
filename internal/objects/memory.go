package objects

import (
	"sync"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// Memory remembers a client's own last writes. So a renewal or a release need
// not read before it writes. It is safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	known map[string]memory
}

type memory struct {
	record  tenure.Record
	version cas.Version
}

// mostKnown bounds the number of remembered keys. A key that is not remembered
// costs one read.
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

// Forget forgets a key, after another client has changed it.
func (m *Memory) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}

// Recall returns the record and version that Keep stored for a key. The caller
// must not change the record's slices.
func (m *Memory) Recall(key string) (tenure.Record, cas.Version, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.known[key]
	return known.record, known.version, ok
}
