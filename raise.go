package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// raise raises the fence at some guards, all at the same time, each within CallTimeout.
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

// raiseAt raises the fence at guards that are known by their targets alone, all at the same time. One that cannot be opened is reported, not fatal: the
// operator's process need not know every kind of resource.
func (c *Client) raiseAt(ctx context.Context, stamp fence.Stamp, targets []string) []Raise {
	raised := make([]Raise, len(targets))
	var wait sync.WaitGroup
	for i, target := range targets {
		wait.Go(func() {
			opening, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
			defer cancel()
			g, err := guard.Open(opening, target)
			if err != nil {
				raised[i] = c.tellRaise(stamp, Raise{Target: target, Err: fmt.Errorf("the guard could not be opened here; raise the fence from where it can be: %w", err)})
				return
			}
			defer g.Close()
			r := c.raiseOne(ctx, stamp, g)
			r.Target = target // as the record names it
			if errors.Is(r.Err, fence.ErrStale) {
				r.Err = nil // who came after has raised it higher: that keeps out the same ones, and more
			}
			raised[i] = c.tellRaise(stamp, r)
		})
	}
	wait.Wait()
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
