package etcd

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// machineClock names this machine's clock in records. All processes
// of one boot share it, also in containers. If the system gives boots no name,
// every process has a clock of its own.
var machineClock = nameClock(bootName())

func nameClock(boot string) identity {
	if boot == "" {
		return newIdentity()
	}
	sum := sha256.Sum256([]byte("croft clock " + boot))
	return identity(binary.BigEndian.Uint64(sum[:])) | 1 // never 0
}

// clocks knows for each clock of other machines a time that it must have
// reached. The store compares another holder's deadline with that. So two
// clocks need not agree. They must only run at about one rate.
//
// A key's record and heartbeat count for that key alone. Users that may write
// to some keys must not decide what time it is for the holders of other keys.
type clocks struct {
	mu   sync.Mutex
	seen map[clockOfKey]sighting
}

// clockOfKey is a clock as one key shows it.
type clockOfKey struct {
	key   string
	clock identity
}

// sighting is a time on another clock, and when it was seen here.
type sighting struct {
	said time.Time
	at   time.Time // has a monotonic reading
	mod  int64     // the newest revision that showed the clock
	last time.Time // the time it showed there
}

// maxSightings bounds the map.
const maxSightings = 16384

// saw notes that the value of a key, written at revision mod, has time t on a
// clock.
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
		for one := range c.seen { // it is seen again when its key is read
			delete(c.seen, one)
			break
		}
	}
	c.seen[as] = s
}

// forget drops all sightings after a restore. New revisions are lower then, and
// would seem old.
func (c *clocks) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = nil
}

// atLeast returns a time that a clock must have reached by now, as far as one
// key shows it. It returns the zero time if nothing is known.
func (c *clocks) atLeast(key string, clock identity) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.seen[clockOfKey{key, clock}]
	if !known {
		return time.Time{}
	}
	return s.now(time.Now())
}

// now computes what the clock must say now. It counts 5 % less time than has
// passed here, because clocks run at slightly different rates.
func (s sighting) now(now time.Time) time.Time {
	passed := max(now.Sub(s.at), 0)
	return s.said.Add(passed - passed/20)
}
