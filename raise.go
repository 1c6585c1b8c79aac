package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/raise"
	"github.com/croft-dev/croft/store"
)

// raise raises the fence at all guards at the same time, each within
// CallTimeout.
func (c *Client) raise(ctx context.Context, stamp fence.Stamp, guards []guard.Guard) []Raise {
	raised := make([]Raise, len(guards))
	var wait sync.WaitGroup
	for i, g := range guards {
		wait.Go(func() { raised[i] = c.tellRaise(stamp, c.raiseOne(ctx, stamp, g)) })
	}
	wait.Wait()
	return raised
}

func (c *Client) raiseOne(ctx context.Context, stamp fence.Stamp, g guard.Guard) Raise {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	_, err := g.Raise(ctx, stamp)
	return Raise{Target: g.Target(), Err: err}
}

// raiser returns a Raiser for guards that a record names.
func (c *Client) raiser(allowed guard.Allowed) raise.Raiser {
	return raise.Raiser{Store: c.st, Allowed: allowed, Timeout: c.o.CallTimeout}
}

// raiseNamed raises the fence at guards that a record names.
func (c *Client) raiseNamed(ctx context.Context, stamp fence.Stamp, targets []string, allowed guard.Allowed) []Raise {
	raised := make([]Raise, len(targets))
	for i, err := range c.raiser(allowed).Named(ctx, stamp, targets) {
		raised[i] = c.tellRaise(stamp, Raise{Target: targets[i], Err: err})
	}
	return raised
}

// unfenced returns the error about guards at which the fence is not up, or nil.
func unfenced(raised []Raise) error {
	var all []error
	for _, r := range raised {
		if r.Err != nil {
			all = append(all, fmt.Errorf("%s: %w", store.Redact(r.Target), r.Err))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnfenced, errors.Join(all...))
}

func (c *Client) tellRaise(stamp fence.Stamp, r Raise) Raise {
	kind := EventRaised
	if r.Err != nil {
		kind = EventRaiseRefused
	}
	c.emit(Event{Kind: kind, Key: stamp.Key, Token: stamp.Token, Target: r.Target, Err: r.Err})
	return r
}
