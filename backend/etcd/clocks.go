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
	return identity(binary.BigEndian.Uint64(sum[:])) | unnamed<<1 // none of those that mean something else
}

func newIdentity() identity {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
		if i := identity(binary.BigEndian.Uint64(b[:])); i > unnamed {
			return i
		}
	}
}

// clocks is what a store knows of the clocks of others: that they are at least
// somewhere. etcd gives no time, so a deadline of another is compared with what
// its own clock must have reached since it was seen to write. That takes no two
// clocks to agree, only to run at about one rate.
//
// A key's record, and the page that it names, count for that key alone. Others
// may be able to write to some keys, and must not say what time it is for the
// holders of the rest. Leases on one page share the time that it says.
type clocks struct {
	mu   sync.Mutex
	seen map[clockOfKey]sighting
}

// spoken is a clock as one key shows it.
type clockOfKey struct {
	key   string
	clock identity
}

// sighting is a time on another's clock and when it was seen here.
type sighting struct {
	said time.Time
	at   time.Time // with its monotonic reading
	mod  int64     // the newest revision that showed the clock
	last time.Time // the time it showed there
}

// mostSightings bounds how many are remembered.
const maxSightings = 16384

// saw notes that a clock said t in what was written at revision mod.
func (c *clocks) saw(key string, clock identity, t time.Time, mod int64) {
	if clock == 0 || clock == machineClock {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	as := clockOfKey{key, clock}
	s, known := c.seen[as]
	if known && mod < s.mod {
		return // the clock may have been set back since
	}
	setBack := known && mod > s.mod && t.Before(s.last)
	if !known || mod > s.mod {
		s.mod, s.last = mod, t
	}
	if !known || setBack || t.After(s.now(now)) {
		s.said, s.at = t, now
	}
	if c.seen == nil {
		c.seen = map[clockOfKey]sighting{}
	}
	if !known && len(c.seen) >= maxSightings {
		for one := range c.seen { // it is learned again when its key is read
			delete(c.seen, one)
			break
		}
	}
	c.seen[as] = s
}

// forget drops the sightings when etcd was set back to an earlier state. Its
// revisions begin again lower, and would all look old.
func (c *clocks) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = nil
}

// least is what a clock must have reached by now, as far as a key shows it.
func (c *clocks) atLeast(key string, clock identity) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.seen[clockOfKey{key, clock}]
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
