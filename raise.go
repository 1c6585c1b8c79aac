package croft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
// time. The holder wrote those targets, so they are data: see openNamed. A guard
// that hangs is given up: the act is done, and its caller must learn of it.
func (c *Client) raiseNamed(ctx context.Context, stamp fence.Stamp, targets []string, allowed guard.Allowed) []Raise {
	ctx, cancel := context.WithTimeout(ctx, 4*c.o.CallTimeout) // as many calls as raiseAt makes
	defer cancel()
	type outcome struct {
		i   int
		err error
	}
	raised, done := make([]Raise, len(targets)), make(chan outcome, len(targets))
	for i, target := range targets {
		raised[i] = Raise{Target: target, Err: errHangs}
		go func() { done <- outcome{i, c.raiseAt(ctx, stamp, target, allowed)} }()
	}
	gather(ctx, len(targets), done, func(o outcome) { raised[o.i].Err = o.err })
	for i := range raised {
		if errors.Is(raised[i].Err, errHangs) {
			raised[i].Err = fmt.Errorf("%w: %w", errHangs, context.Cause(ctx))
		}
		raised[i] = c.tellRaise(stamp, raised[i])
	}
	return raised
}

var errHangs = errors.New("the guard did not answer, and may still be raised later")

// raiseAt raises the fence at a target. It succeeds if the mark that then
// stands shuts out every owner before the stamp's.
func (c *Client) raiseAt(ctx context.Context, stamp fence.Stamp, target string, allowed guard.Allowed) error {
	g, _, err := c.openNamed(ctx, target, allowed)
	if err != nil {
		return err
	}
	defer g.Close()
	err = c.raiseOne(ctx, stamp, g).Err
	if !errors.Is(err, fence.ErrStale) {
		return err
	}
	// A later owner may have raised it. Then its stamp is the one to raise to.
	// Otherwise the mark is of a token that this store has not given out.
	rec, readErr := c.read(ctx, stamp.Key)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case rec.Token > stamp.Token:
		return c.raiseOne(ctx, rec.Stamp(), g).Err
	}
	return err
}

// highest is the highest token that guards which a record names remember of its
// key. An operator's act takes a token above it: the guards may remember more
// than the store, if that was set back to an earlier state. A token so high that
// guards refuse the next one is left out: it would use up the key's tokens.
// A guard that does not answer within CallTimeout is left out, too: whoever
// raises it will say so.
func (c *Client) highest(ctx context.Context, key string, targets []string, allowed guard.Allowed) (highest fence.Token) {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	tokens := make(chan fence.Token, len(targets))
	for _, target := range targets {
		go func() {
			g, mark, err := c.openNamed(ctx, target, allowed)
			if err != nil {
				tokens <- 0
				return
			}
			_ = g.Close()
			if mark.Key != key || !fence.CanFollow(mark.Token, time.Now()) {
				mark.Token = 0
			}
			tokens <- mark.Token
		}()
	}
	gather(ctx, len(targets), tokens, func(token fence.Token) { highest = max(highest, token) })
	return highest
}

// gather takes n answers, or those that are there when ctx ends: a file system
// may hang for longer than that.
func gather[T any](ctx context.Context, n int, answers <-chan T, take func(T)) {
	for range n {
		select {
		case answer := <-answers:
			take(answer)
		case <-ctx.Done():
			select { // both may be ready
			case answer := <-answers:
				take(answer)
			default:
				return
			}
		}
	}
}

// openNamed opens the guard that a holder named in its record, and reads its
// mark. It opens what is in the store's own place, over the store's own
// connection, and what the operator has allowed. The rest it refuses: opening
// it would send this process's credentials wherever the holder says.
//
// It also refuses a guard without a mark. Whoever names a guard raises it
// first, so it has one. To make one here would let a holder decide where this
// process makes files, rows and objects.
func (c *Client) openNamed(ctx context.Context, target string, allowed guard.Allowed) (guard.Guard, fence.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	g, err := c.openAt(ctx, target, allowed)
	if err != nil {
		return nil, fence.Mark{}, err
	}
	mark, err := g.Mark(ctx)
	if err == nil && mark.IsZero() {
		err = errors.New("nothing was ever guarded there, so there is no fence to raise; if the holder may still begin to write there, use guard raise")
	}
	if err != nil {
		_ = g.Close()
		return nil, fence.Mark{}, err
	}
	return g, mark, nil
}

func (c *Client) openAt(ctx context.Context, target string, allowed guard.Allowed) (guard.Guard, error) {
	if host, ok := c.st.(guard.Host); ok {
		g, err := host.Guard(ctx, target)
		if !errors.Is(err, guard.ErrElsewhere) {
			return g, err
		}
	}
	g, err := allowed.Open(ctx, target)
	if err != nil && !errors.Is(err, ErrNotAllowed) {
		err = fmt.Errorf("the guard could not be opened here; raise the fence from where it can be: %w", err)
	}
	return g, err
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
