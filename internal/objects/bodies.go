package objects

import "sync"

// Bodies are objects that scans have read. What has the same name and tag has the same content, for no two bodies are the same. It is safe for concurrent use.
type Bodies struct {
	mu     sync.Mutex
	byName map[string]taggedBody
}

type taggedBody struct {
	tag  string
	data []byte
}

// mostBodies bounds what is kept: a few megabytes.
const mostBodies = 4096

// Known is what was kept of an object under this tag, or nil.
func (b *Bodies) Known(name, tag string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept := b.byName[name]; kept.tag == tag {
		return kept.data
	}
	return nil
}

// Keep remembers an object. The data is not changed afterwards.
func (b *Bodies) Keep(name, tag string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byName == nil {
		b.byName = map[string]taggedBody{}
	}
	if _, again := b.byName[name]; !again && len(b.byName) >= mostBodies {
		for other := range b.byName { // any of them
			delete(b.byName, other)
			break
		}
	}
	b.byName[name] = taggedBody{tag, data}
}
