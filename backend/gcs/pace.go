package gcs

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// pace keeps renewals and reports to the rate at which the service takes writes to one object. Grants and releases go at once: somebody waits for them, and if the service wants them
// later it says so.
type pace struct {
	every time.Duration // zero: no limit
	clock clock.Clock

	mu   sync.Mutex
	last map[string]clock.Instant
}

// limit is the least time between two writes to an object. Google's service has many endpoints, private ones too, all with https; emulators, which have no such limit, do without.
func (b *bucket) limit() time.Duration {
	if strings.HasPrefix(b.place, "https://") {
		return time.Second
	}
	return 0
}

// wrote notes a write to a key's object.
func (p *pace) wrote(key string) {
	if p.every == 0 {
		return
	}
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[string]clock.Instant{}
	}
	if p.last[key] = now; len(p.last)%4096 == 0 { // what is older than the limit says nothing
		for other, at := range p.last {
			if now.Sub(at) > p.every {
				delete(p.last, other)
			}
		}
	}
}

// wait waits until a key's object may be written again.
func (p *pace) wait(ctx context.Context, key string) error {
	p.mu.Lock()
	last, known := p.last[key]
	p.mu.Unlock()
	if !known {
		return nil
	}
	if left := p.every - p.clock.Now().Sub(last); left > 0 && !sleep(ctx, left) {
		return over(ctx)
	}
	return nil
}
