package objects

import "sync"

// Bodies keeps objects that scans have read. No two bodies are equal, so the
// same name and tag mean the same content. It is safe for concurrent use.
type Bodies struct {
	mu     sync.Mutex
	byName map[string]taggedBody
	size   int // of all bodies, in bytes
}

type taggedBody struct {
	tag  string
	data []byte
}

// These bound the number of kept bodies, and their bytes. Anybody who can write
// to the bucket decides how long bodies are.
const (
	mostBodies     = 4096
	mostBodiesSize = 16 << 20
)

// Known returns the kept content of an object under this tag, or nil.
func (b *Bodies) Known(name, tag string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept := b.byName[name]; kept.tag == tag {
		return kept.data
	}
	return nil
}

// Keep keeps the content of an object. Nobody may change data afterwards.
func (b *Bodies) Keep(name, tag string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byName == nil {
		b.byName = map[string]taggedBody{}
	}
	b.drop(name)
	for other := range b.byName { // any of them
		if len(b.byName) < mostBodies && b.size+len(data) <= mostBodiesSize {
			break
		}
		b.drop(other)
	}
	b.byName[name] = taggedBody{tag, data}
	b.size += len(data)
}

// drop forgets an object. The caller holds the mutex.
func (b *Bodies) drop(name string) {
	b.size -= len(b.byName[name].data)
	delete(b.byName, name)
}
