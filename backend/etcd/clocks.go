package etcd

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// machineClock names this machine's clock in what it writes: all processes of one boot share it, in containers, too. Where the system gives the boot no name, every process counts as having a clock of its own.
var machineClock = nameClock(bootName())

func nameClock(boot string) identity {
	if boot == "" {
		return newIdentity()
	}
	sum := sha256.Sum256([]byte("croft clock " + boot))
	return identity(binary.BigEndian.Uint64(sum[:])) | someone<<1 // none of those that mean something else
}

func newIdentity() identity {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
		if i := identity(binary.BigEndian.Uint64(b[:])); i > someone {
			return i
		}
	}
}

// clocks is what a store knows of the clocks of others: that they are at least somewhere. etcd gives no time, so a deadline of another is compared
// with what its own clock must have reached since it was seen to write. That takes no two clocks to agree, only to run at about one rate.
type clocks struct {
	mu   sync.Mutex
	seen map[identity]sighting
}

// sighting is a time on another's clock and when it was seen here.
type sighting struct {
	said time.Time
	at   time.Time // with its monotonic reading
}

// mostClocks bounds how many are remembered.
const mostClocks = 1024

// saw notes that a clock said t.
func (c *clocks) saw(clock identity, t time.Time) {
	if clock == 0 || clock == machineClock {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, known := c.seen[clock]; known && !t.After(old.now(now)) {
		return
	}
	if c.seen == nil || len(c.seen) >= mostClocks {
		c.seen = map[identity]sighting{} // they are learned again as they write
	}
	c.seen[clock] = sighting{said: t, at: now}
}

// least is what a clock must have reached by now.
func (c *clocks) least(clock identity) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.seen[clock]
	if !known {
		return time.Time{}
	}
	return s.now(time.Now())
}

// now lets a clock that was seen run on, by a twentieth slower than this one: by so much clocks may differ in rate.
func (s sighting) now(now time.Time) time.Time {
	passed := max(now.Sub(s.at), 0)
	return s.said.Add(passed - passed/20)
}
