package etcd

import (
	"sync"
	"time"
)

// ages tells how old something in etcd is, by its revision: it was written after this store had sent a call that was answered with an earlier one. No clock but this store's own is in it.
type ages struct {
	mu   sync.Mutex
	seen [16]struct {
		revision int64
		sent     time.Time
		wall     time.Time // the same on the clock that runs on while the machine is suspended
	}
	n int // seen, the newest at n-1
}

// spacing is how far apart the calls are that are remembered.
const spacing = 250 * time.Millisecond

// note remembers that a call sent at some time was answered at a revision.
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

// forget drops all, when etcd was set back to an earlier state.
func (a *ages) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n = 0
}

// of is how old at the most what was written at a revision is, if that is known.
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
