package objects

import (
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// Clock is the service's clock, as its responses show it. Responses are dated
// in whole seconds, so only a span is known: from the date of a response to
// that date plus a grain. store/cas gets both ends of the span, as Now and
// Latest of [cas.Entry]. It sets deadlines by the end of the span and judges
// them by its beginning. So a lease is never shorter than its holder believes.
//
// Between responses the span moves on by this machine's clock. It grows by the
// possible difference in rate between the two clocks. The date on a client's
// clock plays no part.
type Clock struct {
	grain time.Duration
	local clock.Clock

	mu             sync.Mutex
	date           time.Time // the date of the newest response
	sent, received clock.Instant
}

const (
	// rate is how much the rates of two clocks may differ, as a divisor: 5 %.
	rate = 20
	// widest is the widest usable span. Beyond it, asking the service is
	// better.
	widest = time.Minute
)

// NewClock makes a clock of a service whose Date header is less than grain
// behind. The grain is one second if the server makes the header for each
// response. It is two seconds if the server makes it once a second for all
// responses.
func NewClock(grain time.Duration, local clock.Clock) *Clock {
	return &Clock{grain: grain, local: local}
}

// Local returns the time of this machine's clock, for Observe.
func (c *Clock) Local() clock.Instant { return c.local.Now() }

// At returns the span in which a response with this date was made.
func (c *Clock) At(date time.Time) (earliest, latest time.Time) { return date, date.Add(c.grain) }

// Observe takes the date of a response, and when its request was sent and its
// response received. Responses may be observed in any order.
func (c *Clock) Observe(sent, received clock.Instant, date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() || sent >= c.sent {
		c.date, c.sent, c.received = date, sent, received
	}
}

// Span returns the earliest and the latest time that it may be on the service's
// clock now, without asking. known is false before the first response, and too
// long after the last.
func (c *Clock) Span() (earliest, latest time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return time.Time{}, time.Time{}, false
	}
	now := c.local.Now()
	// The service made the response between these two instants.
	least, most := max(now.Sub(c.received), 0), max(now.Sub(c.sent), 0)
	// Whole seconds, as in a response. So a client that asks never gets an
	// earlier time than a client that computes it.
	earliest = c.date.Add(least - least/rate).Truncate(time.Second)
	latest = c.date.Add(c.grain + most + most/rate)
	return earliest, latest, latest.Sub(earliest) <= widest
}
