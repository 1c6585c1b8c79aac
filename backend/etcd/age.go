package etcd

import (
	"sync"
	"time"
)

// ages tells how old a value in etcd is, by its revision. The value was written
// after this store sent a call that was answered with a lower revision. Only
// this store's own clock is used.
type ages struct {
	mu   sync.Mutex
	seen [16]struct {
		revision int64
		sent     time.Time
		wall     time.Time // the same on the clock that runs during suspend
	}
	n int // how many were noted; the newest is at n-1
}

// spacing is the least time between noted calls.
const spacing = 250 * time.Millisecond

// note notes that a call sent at a time was answered with a revision.
func (a *ages) note(sent time.Time, revision int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n > 0 {
		if last := &a.seen[(a.n-1)%len(a.seen)]; revision < last.revision || sent.Sub(last.sent) < spacing {
			return
		}
	}
	e := &a.seen[a.n%len(a.seen)]
	e.revision, e.sent, e.wall = revision, sent, sent.Round(0)
	a.n++
}

// forget drops everything, after a restore.
func (a *ages) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n = 0
}

// of returns an upper bound of the age of a value that was written at a
// revision.
func (a *ages) of(revision int64) (age time.Duration, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := a.n - 1; n >= max(0, a.n-len(a.seen)); n-- {
		if e := &a.seen[n%len(a.seen)]; e.revision < revision {
			return max(time.Since(e.sent), time.Since(e.wall)), true
		}
	}
	return 0, false
}
