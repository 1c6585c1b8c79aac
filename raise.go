package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
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

// raiseNamed raises the fence at guards that a record names, all at the same
// time. The holder wrote those targets, so they are data: see openNamed. If a
// guard remembers a token that this store has not issued, raiseNamed returns
// the highest of those tokens.
func (c *Client) raiseNamed(ctx context.Context, stamp fence.Stamp, targets []string, allowed guard.Allowed) (raised []Raise, ahead fence.Token) {
	raised, tokens := make([]Raise, len(targets)), make([]fence.Token, len(targets))
	var wait sync.WaitGroup
	for i, target := range targets {
		wait.Go(func() {
			r := Raise{Target: target}
			tokens[i], r.Err = c.raiseAt(ctx, stamp, target, allowed)
			raised[i] = c.tellRaise(stamp, r)
		})
	}
	wait.Wait()
	for _, token := range tokens {
		ahead = max(ahead, token)
	}
	return raised, ahead
}

// raiseAt raises the fence at a target. It succeeds if the mark that then
// stands shuts out every owner before the stamp's. If the guard remembers a
// token that this store has not issued, raiseAt returns that token with the
// guard's refusal.
func (c *Client) raiseAt(ctx context.Context, stamp fence.Stamp, target string, allowed guard.Allowed) (ahead fence.Token, err error) {
	g, err := c.openNamed(ctx, target, allowed)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	if err := c.marked(ctx, g); err != nil {
		return 0, err
	}
	err = c.raiseOne(ctx, stamp, g).Err
	var refused *fence.RefusedError
	var stale *fence.StaleError
	var stands fence.Token
	switch {
	case errors.As(err, &stale):
		stands = stale.Newest.Token
	case errors.Is(err, fence.ErrWrongKey): // it refuses all owners of this key
		return 0, nil
	case errors.As(err, &refused):
		stands = refused.Mark.Token
	default:
		return 0, err
	}
	// The mark is at least as high as the stamp. If a later owner raised it,
	// all is well. It may also be the mark of the holder that was replaced, if
	// the store has forgotten that it gave out this token.
	rec, readErr := c.read(ctx, stamp.Key)
	switch {
	case readErr != nil:
		return 0, errors.Join(err, readErr)
	case rec.Token > stamp.Token && rec.Token >= stands:
		return 0, nil
	}
	return stands, err
}

// marked is the error about a guard without a mark. Whoever names a guard
// raises it first, so it has one. To make one here would let a holder decide
// where this process makes files, rows and objects.
func (c *Client) marked(ctx context.Context, g guard.Guard) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	mark, err := g.Mark(ctx)
	if err == nil && mark.IsZero() {
		err = errors.New("nothing was ever guarded there, so there is no fence to raise")
	}
	return err
}

// openNamed opens the guard that a holder named in its record. It opens what
// is in the store's own place, over the store's own connection, and what the
// operator has allowed. The rest it refuses: opening it would send this
// process's credentials wherever the holder says.
func (c *Client) openNamed(ctx context.Context, target string, allowed guard.Allowed) (guard.Guard, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	if host, ok := c.st.(guard.Host); ok {
		g, err := host.Guard(ctx, target)
		if !errors.Is(err, guard.ErrElsewhere) {
			return g, err
		}
	}
	if !allowed.Has(target) {
		return nil, ErrNotAllowed
	}
	g, err := guard.Open(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("the guard could not be opened here; raise the fence from where it can be: %w", err)
	}
	return g, nil
}

// unfenced is the error about guards at which the fence is not up, or nil.
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
