// Package raise raises the fence at guards that a record names.
//
// A holder writes the targets of its guards into its record. So these targets
// are data from somebody else. A [Raiser] opens only those in the store's own
// place, over the store's own connection, and those that the operator has
// allowed. Opening others would send this process's credentials wherever the
// holder says.
//
// A Raiser asks each guard on a goroutine of its own, and waits for all of them
// only as long as its time limit. A guard that hangs leaves its goroutine
// behind until the guard's call returns. The goroutines share nothing but a
// channel with room for all answers.
package raise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Raiser raises the fence at named guards.
type Raiser struct {
	Store   store.Store
	Allowed guard.Allowed // where else it may raise, besides the store's own place
	Timeout time.Duration // limits one call of the store or of a guard
}

// Named raises the fence at targets, all at the same time. It returns one error
// per target, nil where the fence is up. It does not wait for a guard that
// hangs, because the caller's act is done and the caller must learn of that.
func (r Raiser) Named(ctx context.Context, stamp fence.Stamp, targets []string) []error {
	ctx, cancel := context.WithTimeout(ctx, 4*r.Timeout) // raiseAt makes at most so many calls
	defer cancel()
	type outcome struct {
		i   int
		err error
	}
	errs, done := make([]error, len(targets)), make(chan outcome, len(targets))
	for i, target := range targets {
		errs[i] = errHangs
		go func() { done <- outcome{i, r.raiseAt(ctx, stamp, target)} }()
	}
	gather(ctx, len(targets), done, func(o outcome) { errs[o.i] = o.err })
	for i := range errs {
		if errors.Is(errs[i], errHangs) {
			errs[i] = fmt.Errorf("%w: %w", errHangs, context.Cause(ctx))
		}
	}
	return errs
}

var errHangs = errors.New("the guard did not answer, and may still be raised later")

// raiseAt raises the fence at a target. It succeeds if the guard's mark then
// shuts out every owner before the stamp's.
func (r Raiser) raiseAt(ctx context.Context, stamp fence.Stamp, target string) error {
	g, _, err := r.open(ctx, target)
	if err != nil {
		return err
	}
	defer g.Close()
	err = r.raise(ctx, stamp, g)
	if !errors.Is(err, fence.ErrStale) {
		return err
	}
	// A later owner may have raised the fence. Then raise to its stamp.
	// Otherwise the mark has a token that this store never issued.
	rec, readErr := r.read(ctx, stamp.Key)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case rec.Token > stamp.Token:
		return r.raise(ctx, rec.Stamp(), g)
	}
	return err
}

func (r Raiser) raise(ctx context.Context, stamp fence.Stamp, g guard.Guard) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	_, err := g.Raise(ctx, stamp)
	return err
}

func (r Raiser) read(ctx context.Context, key string) (tenure.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return r.Store.Get(ctx, key)
}

// Highest returns the highest token of key that the guards at targets remember.
// An operator's act takes a token above it. The guards may remember more than a
// store that was restored to an earlier state.
//
// Highest leaves out a token so high that guards refuse the next one: following
// it would use up the key's tokens. It also leaves out a guard that does not
// answer within Timeout. Raising the fence there will report it.
func (r Raiser) Highest(ctx context.Context, key string, targets []string) (highest fence.Token) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	tokens := make(chan fence.Token, len(targets))
	for _, target := range targets {
		go func() {
			g, mark, err := r.open(ctx, target)
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

// gather takes n answers, or those that are there when ctx ends. A file system
// may hang for longer than that.
func gather[T any](ctx context.Context, n int, answers <-chan T, take func(T)) {
	for range n {
		select {
		case answer := <-answers:
			take(answer)
		case <-ctx.Done():
			select { // an answer may be ready too
			case answer := <-answers:
				take(answer)
			default:
				return
			}
		}
	}
}

// open opens a named guard and reads its mark. It refuses a guard without a
// mark. Every holder raises the fence at its guards first, so they have one.
// Making a mark here would let a holder decide where this process creates
// files, rows and objects.
func (r Raiser) open(ctx context.Context, target string) (guard.Guard, fence.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	g, err := r.openAt(ctx, target)
	if err != nil {
		return nil, fence.Mark{}, err
	}
	mark, err := g.Mark(ctx)
	if err == nil && mark.IsZero() {
		err = errors.New("nothing was ever guarded there, so there is no fence to raise; " +
			"if the holder may still begin to write there, use guard raise")
	}
	if err != nil {
		_ = g.Close()
		return nil, fence.Mark{}, err
	}
	return g, mark, nil
}

func (r Raiser) openAt(ctx context.Context, target string) (guard.Guard, error) {
	if host, ok := r.Store.(guard.Host); ok {
		g, err := host.Guard(ctx, target)
		if !errors.Is(err, guard.ErrElsewhere) {
			return g, err
		}
	}
	g, err := r.Allowed.Open(ctx, target)
	if err != nil && !errors.Is(err, guard.ErrNotAllowed) {
		err = fmt.Errorf("the guard could not be opened here; raise the fence from where it can be: %w", err)
	}
	return g, err
}
