package sim

import (
	"math"
	"time"
)

// dial is a clock. It runs evenly until somebody sets it or changes its rate.
// It computes with integers, so that it is the same on every machine.
type dial struct {
	since time.Duration // the true time of the last change
	shows int64         // its time then, in nanoseconds
	ppm   int64         // how fast it is, in parts per million
}

const (
	million = 1_000_000
	// stopped is the rate of a clock that stands still.
	stopped = -million
	// far is a true time that never comes.
	far time.Duration = math.MaxInt64 / 4
)

// at returns the dial's time at a true time.
func (d *dial) at(t time.Duration) int64 { return d.shows + scale(int64(t-d.since), million+d.ppm) }

// when returns the first true time at which the dial shows i, if nobody changes
// it.
func (d *dial) when(i int64) time.Duration {
	rate := million + d.ppm
	if i <= d.shows {
		return d.since
	}
	if rate <= 0 || i-d.shows > int64(far)/2 {
		return far
	}
	n := i - d.shows
	t := n/rate*million + (n%rate*million+rate-1)/rate
	return d.since + time.Duration(t)
}

// pace changes the rate from now on.
func (d *dial) pace(now time.Duration, ppm int64) {
	d.shows, d.since, d.ppm = d.at(now), now, ppm
}

// step sets the dial forward or back.
func (d *dial) step(now, by time.Duration) {
	d.shows, d.since = d.at(now)+int64(by), now
}

// scale returns n·rate/million without overflow.
func scale(n, rate int64) int64 { return n/million*rate + n%million*rate/million }
