package dir

import (
	"io/fs"
	"sync"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/tenure"
)

// recallMost is how many records a handle keeps in memory.
const recallMost = 1024

// recall keeps the newest versions that this handle has read or made, so that a holder who renews, or releases what it took, need not read and decode
// its own record. A version file is never changed once it has its name: what was read from the same file is what is in it. Which version is the
// newest is looked up every time.
type recall struct {
	mu    sync.Mutex
	known map[string]recalled // by hash
}

type recalled struct {
	at     position
	record tenure.Record
	file   fs.FileInfo
	safe   bool // the folder of its life is where it is for good, power cut or not
}

// life is the life that the key had when it was last seen, or "".
func (c *recall) life(hash string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[hash].at.life
}

// version is the record in a version file, if that is the very file it was read from or written to: not one that a restored backup, or a
// person, has put in its place.
func (c *recall) version(hash string, at position, file fs.FileInfo) (tenure.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hash]
	if k.at != at || !fsys.SameFile(k.file, file) || !k.file.ModTime().Equal(file.ModTime()) || k.file.Size() != file.Size() {
		return tenure.Record{}, false
	}
	return k.record, true
}

// keep remembers a version. The record must not be changed any more.
func (c *recall) keep(hash string, at position, record tenure.Record, file fs.FileInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]recalled{}
	}
	if _, known := c.known[hash]; !known && len(c.known) >= recallMost {
		for other := range c.known { // in no order: whoever goes is read again
			delete(c.known, other)
			break
		}
	}
	k := c.known[hash]
	c.known[hash] = recalled{at, record, file, k.safe && k.at.life == at.life}
}

// safe remembers that a life's folder, if it is the one last seen, stays where it is.
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
