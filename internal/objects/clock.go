package objects

import (
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// Clock is the service's clock as its responses show it. They are dated in whole seconds, so what is known is a span: from the date of a response to
// that date and a grain. Deadlines are set by the end of the span and judged by its beginning, which is how store/cas uses [cas.Entry]'s Now and Latest: a lease is never
// shorter than its holder believes, whatever the fraction of the second was.
//
// Between responses the span goes on by this machine's clock and grows by what two clocks may differ in rate. No client's idea of the date enters.
type Clock struct {
	grain time.Duration
	local clock.Clock

	mu             sync.Mutex
	date           time.Time // of the newest response
	sent, received clock.Instant
}

const (
	// rate is how much two clocks may differ, as a divisor: 5 %.
	rate = 20
	// widest is the span beyond which asking is better than reckoning.
	widest = time.Minute
)

// NewClock makes a clock of a service whose Date header, when a response is made, is behind by less than grain: one second for a header that is made for the response, two
// where a server makes it once a second for all.
func NewClock(grain time.Duration, local clock.Clock) *Clock {
	return &Clock{grain: grain, local: local}
}

// Local is this machine's clock, by which Observe is told when something happened.
func (c *Clock) Local() clock.Instant { return c.local.Now() }

// At is the span in which a response with this date was made.
func (c *Clock) At(date time.Time) (earliest, latest time.Time) { return date, date.Add(c.grain) }

// Observe takes the date of a response to a request sent at one instant and received at another. Requests that the service answered earlier may be observed later.
func (c *Clock) Observe(sent, received clock.Instant, date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() || sent >= c.sent {
		c.date, c.sent, c.received = date, sent, received
	}
}

// Span is the service's time now, without asking: no earlier than one and no later than the other. It is not known before the first response, or too long after the last.
func (c *Clock) Span() (earliest, latest time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return time.Time{}, time.Time{}, false
	}
	now := c.local.Now()
	// The response was made after it was asked for and before it arrived.
	least, most := max(now.Sub(c.received), 0), max(now.Sub(c.sent), 0)
	// Whole seconds, as in a response: a client that asks is then never told an earlier time than one that reckons.
	earliest = c.date.Add(least - least/rate).Truncate(time.Second)
	latest = c.date.Add(c.grain + most + most/rate)
	return earliest, latest, latest.Sub(earliest) <= widest
}
