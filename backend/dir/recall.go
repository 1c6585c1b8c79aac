package dir

import (
	"io/fs"
	"sync"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/tenure"
)

// recallMost is how many records a handle keeps in memory.
const recallMost = 1024

// recall caches the newest versions that this handle has read or made. So a
// holder that renews or releases need not read and decode its own record.
//
// A named version file never changes, so the cached record of the same file is
// right. Which version is the newest is looked up every time.
type recall struct {
	mu    sync.Mutex
	known map[string]recalled // by hash
}

type recalled struct {
	at     position
	record tenure.Record
	file   fs.FileInfo
	safe   bool // a power cut cannot take the folder of its life away
}

// life is the life that the key had when this handle last saw it, or "".
func (c *recall) life(hash string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[hash].at.life
}

// version returns the record in a version file, if it is cached. The file must
// be the very file that was read or written: a restored backup, or a person,
// may have put another in its place.
func (c *recall) version(hash string, at position, file fs.FileInfo) (tenure.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hash]
	if k.at != at || !fsys.SameFile(k.file, file) ||
		!k.file.ModTime().Equal(file.ModTime()) || k.file.Size() != file.Size() {
		return tenure.Record{}, false
	}
	return k.record, true
}

// keep caches a version. The caller must not change the record any more.
func (c *recall) keep(hash string, at position, record tenure.Record, file fs.FileInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]recalled{}
	}
	if _, known := c.known[hash]; !known && len(c.known) >= recallMost {
		for other := range c.known { // any: a record that goes is read again
			delete(c.known, other)
			break
		}
	}
	k := c.known[hash]
	c.known[hash] = recalled{at, record, file, k.safe && k.at.life == at.life}
}

// safe notes that a life's folder is durable, if the life is the cached one.
func (c *recall) safe(hash, life string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, known := c.known[hash]; known && k.at.life == life {
		k.safe = true
		c.known[hash] = k
	}
}

func (c *recall) isSafe(hash, life string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hash]
	return k.safe && k.at.life == life
}

func (c *recall) forget(hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, hash)
}
