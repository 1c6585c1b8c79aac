package croft

import (
	"context"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/raise"
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
	host, _ := c.st.(guard.Host)
	return raise.Raiser{Owners: c.st, Host: host, Allowed: allowed, Timeout: c.o.CallTimeout}
}

// raiseNamed raises the fence at guards that a record names.
func (c *Client) raiseNamed(ctx context.Context, stamp fence.Stamp, targets []string, allowed guard.Allowed) []Raise {
	asks := make([]raise.Ask, len(targets))
	for i, target := range targets {
		asks[i] = raise.Ask{Stamp: stamp, Target: target}
	}
	raised := c.raiser(allowed).Named(ctx, asks)
	for _, r := range raised {
		c.tellRaise(stamp, r)
	}
	return raised
}

func (c *Client) tellRaise(stamp fence.Stamp, r Raise) Raise {
	kind := EventRaised
	if r.Err != nil {
		kind = EventRaiseRefused
	}
	c.emit(Event{Kind: kind, Key: stamp.Key, Token: stamp.Token, Target: r.Target, Err: r.Err})
	return r
}
