package gcs

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/wait"
)

// pace limits renewals, reports and checkpoints to the rate at which the
// service takes writes to one object. This client sends one at a time, and
// renewals go first.
// Grants and releases are not limited: a caller waits for them, and the service
// says so if they come too fast.
type pace struct {
	every time.Duration // zero: no limit
	clock clock.Clock

	mu       sync.Mutex // guards the fields below
	last     map[string]clock.Instant
	tidyAt   int            // how many entries of last make note remove old ones
	renewals map[string]int // the number of waiting renewals
}

// fewestTidied is how many entries there are before any is removed.
const fewestTidied = 4096

// limit returns the shortest time between two writes to an object. Google's
// service has many endpoints, also private ones, all with https. Emulators have
// no such limit and use http.
func (b *bucket) limit() time.Duration {
	if strings.HasPrefix(b.address, "https://") {
		return time.Second
	}
	return 0
}

// wrote notes a write to a key's object.
func (p *pace) wrote(key string) {
	if p.every == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(key, p.clock.Now())
}

// note notes a write. The caller holds the mutex.
func (p *pace) note(key string, now clock.Instant) {
	if p.last == nil {
		p.last = map[string]clock.Instant{}
	}
	if p.last[key] = now; len(p.last) < max(p.tidyAt, fewestTidied) {
		return
	}
	for other, at := range p.last {
		if now.Sub(at) > p.every { // older entries than the limit are useless
			delete(p.last, other)
		}
	}
	p.tidyAt = 2 * len(p.last) // so that few writes pay for a scan
}

// wait waits for the turn to write a key's object, and takes it. It returns
// false early if the write has become stale, and leaves the turn to another.
func (p *pace) wait(ctx context.Context, key string, renewal bool, stale func() bool) (bool, error) {
	if p.every == 0 {
		return true, nil
	}
	if renewal {
		p.waits(key, 1)
		defer p.waits(key, -1)
	}
	for {
		left, ok := p.take(key, renewal, stale)
		if left <= 0 {
			return ok, nil
		}
		if clock.Sleep(ctx, left) != nil {
			return false, wait.Ended(ctx)
		}
	}
}

// take takes the turn if it has come. Otherwise left says when to ask again.
func (p *pace) take(key string, renewal bool, stale func() bool) (left time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stale() {
		return 0, false
	}
	now := p.clock.Now()
	if last, known := p.last[key]; known && p.every > now.Sub(last) {
		return p.every - now.Sub(last), false
	}
	if !renewal && p.renewals[key] > 0 {
		return p.every / 10, false
	}
	p.note(key, now)
	return 0, true
}

func (p *pace) waits(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.renewals == nil {
		p.renewals = map[string]int{}
	}
	if p.renewals[key] += n; p.renewals[key] == 0 {
		delete(p.renewals, key)
	}
}
