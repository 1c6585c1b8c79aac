package croft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// leadPause is the pause before a candidate whose leadership has failed stands
// again.
const leadPause = time.Second

// Election configures [Client.Lead]. OnElected is required.
type Election struct {
	// Lease configures the leader's lease. WaitFor, Every and HoldFor in it are
	// not used. Default: the defaults.
	Lease *LeaseOptions
	// OnElected does the leader's work, for as long as this process leads. Its
	// context ends when the leadership does.
	OnElected Work
	// OnLost is called after OnElected has returned and the lease is released
	// or lost. err says why, as [Client.Do] would return it. It is nil if
	// OnElected has stepped down. Default: nothing is called.
	OnLost func(err error)
	// OnNewLeader is called with the key's record when this process sees a new
	// leader: itself before OnElected, and others while it waits. A leader that
	// was in office for less than a few seconds may not be seen. Default:
	// nothing is called.
	OnNewLeader func(leader Record)
}

// Lead makes this process a candidate in the election of one leader. Of all
// candidates for a key, one leads at a time. All callbacks are called on the
// caller's goroutine, one after the other.
//
// Lead returns nil when ctx ends, and when OnElected returns nil: the leader
// has stepped down, and is no candidate any more. It returns an error when the
// client is closed, when the input is bad, or when OnElected returns an error
// made by [Final]. After any other error of OnElected, a lost lease included,
// there is an [EventWorkFailed], and the process is a candidate again. If a
// leader has stepped down and the store does not confirm the release, the error
// matches [ErrUnknown], as that of [Client.Do] does; the key frees itself.
//
// As with every lease, a former leader may still believe that it leads, for
// example after a pause. Let its writes carry [Lease.Stamp].
func (c *Client) Lead(ctx context.Context, key string, e *Election) error {
	if e == nil || e.OnElected == nil {
		return fmt.Errorf("%w election for %q: OnElected is missing", ErrInvalid, key)
	}
	with := e.Lease.copied()
	with.WaitFor, with.Every, with.HoldFor = Forever, 0, 0
	var seen fence.Token // of the newest leader that OnNewLeader has been told of
	for {
		l, err := c.stand(ctx, key, with, &seen, e.OnNewLeader)
		switch {
		case errors.Is(err, ErrInvalid):
			return err
		case err == nil:
			var led, done bool
			err = l.do(ctx, func(ctx context.Context, l *Lease) error {
				led = true
				if e.OnNewLeader != nil {
					seen = l.Token()
					e.OnNewLeader(l.Record())
				}
				err := e.OnElected(ctx, l)
				done = err == nil
				return err
			})
			if led && e.OnLost != nil {
				e.OnLost(err)
			}
			if done && !errors.Is(err, ErrLost) {
				return err
			}
		}
		if end, over := c.endsWith(ctx, err); over {
			return end
		}
		c.emit(Event{Kind: EventWorkFailed, Key: key, Err: err})
		c.rest(ctx, leadPause)
	}
}

// stand waits until this process is elected. Meanwhile it tells of every new
// leader.
func (c *Client) stand(
	ctx context.Context, key string, o *LeaseOptions, seen *fence.Token, tell func(Record),
) (*Lease, error) {
	for {
		p, err := c.newAcquire(key, o)
		if err != nil {
			return nil, err
		}
		if tell != nil {
			known := *seen
			p.Seen = &known
		}
		l, err := c.acquire(ctx, p)
		var held *HeldError
		if tell == nil || !errors.As(err, &held) || held.Why != WhyHeld || held.Record.Token == *seen {
			return l, err
		}
		*seen = held.Record.Token
		tell(held.Record)
	}
}
