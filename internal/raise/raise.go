// Package raise raises the fence at guards that a record or a work item names.
//
// A holder writes the targets of its guards into its record, and a program that
// adds an item writes them into the item. So these targets are data from
// somebody else. A [Raiser] opens only those in the store's own place, over the
// store's own connection, and those that the operator has allowed. Opening
// others would send this process's credentials wherever somebody else says.
//
// A Raiser asks each guard on a goroutine of its own, a few at a time. It waits
// for all of them only as long as its time limit. A guard that hangs leaves its
// goroutine behind until the guard's call returns, and the whole process has
// room for a limited number of them. The goroutines share only three
// channels: two with room for each that may run, here and in the process,
// and one with room for all answers.
package raise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
)

// Raiser raises the fence at named guards.
type Raiser struct {
	Owners  Owners        // the store or ledger whose stamps it raises to
	Host    guard.Host    // opens guards in the store's own place; may be nil
	Allowed guard.Allowed // where else it may raise
	Timeout time.Duration // limits one call of the store or of a guard
	// First says that it raises for an owner that is about to begin. It then
	// makes a missing mark, and a newer owner at a guard is an error.
	First bool
}

// Owners tells who owns a key.
type Owners interface {
	Get(ctx context.Context, key string) (tenure.Record, error)
}

// Ask is one guard to raise, and the stamp to raise it to.
type Ask struct {
	Stamp  fence.Stamp
	Target string
}

// inProcess bounds the guards that this process asks at the same time. Somebody
// else names them, and may name a folder on a dead mount in every item. Each
// call that hangs there keeps a thread, and a Go program ends if it has 10,000.
var inProcess = make(chan struct{}, 1024)

var errTooMany = errors.New("too many guards hang, so this one was not asked")

// atOnce is how many guards are asked at the same time. A record names no more.
const atOnce = tenure.MaxGuards

// Named raises the fence at guards, several at the same time. It returns one
// outcome for each, in their order. It does not wait for a guard that hangs,
// because the caller's act is done and the caller must learn of that.
func (r Raiser) Named(ctx context.Context, asks []Ask) []guard.Raised {
	ctx, cancel := context.WithTimeout(ctx, 4*r.Timeout) // raiseAt makes at most so many calls
	defer cancel()
	type outcome struct {
		i   int
		err error
	}
	raised, done := make([]guard.Raised, len(asks)), make(chan outcome, len(asks))
	running := make(chan struct{}, atOnce)
	for i, ask := range asks {
		raised[i] = guard.Raised{Target: ask.Target, Err: errHangs}
		go func() {
			select {
			case running <- struct{}{}:
				defer func() { <-running }()
				done <- outcome{i, r.raiseIfRoom(ctx, ask)}
			case <-ctx.Done():
			}
		}()
	}
	gather(ctx, len(asks), done, func(o outcome) { raised[o.i].Err = o.err })
	for i := range raised {
		if errors.Is(raised[i].Err, errHangs) {
			raised[i].Err = fmt.Errorf("%w: %w", errHangs, context.Cause(ctx))
		}
	}
	return raised
}

var errHangs = errors.New("the guard did not answer, and may still be raised later")

// raiseIfRoom is raiseAt, if the process has room left.
func (r Raiser) raiseIfRoom(ctx context.Context, ask Ask) error {
	select {
	case inProcess <- struct{}{}:
		defer func() { <-inProcess }()
		return r.raiseAt(ctx, ask.Stamp, ask.Target)
	default:
		return errTooMany
	}
}

// raiseAt raises the fence at a target. It succeeds if the guard's mark then
// shuts out every owner before the stamp's.
func (r Raiser) raiseAt(ctx context.Context, stamp fence.Stamp, target string) error {
	g, _, err := r.open(ctx, target)
	if err != nil {
		return err
	}
	defer g.Close()
	err = r.raise(ctx, stamp, g)
	if r.First || !errors.Is(err, fence.ErrStale) {
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
	return r.Owners.Get(ctx, key)
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
// mark, unless r.First is set. Every owner raises the fence at its guards
// first, so they have one. Making a mark for an operator's act would let others
// decide where the operator creates files, rows and objects.
func (r Raiser) open(ctx context.Context, target string) (guard.Guard, fence.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	g, err := r.openAt(ctx, target)
	if err != nil {
		return nil, fence.Mark{}, err
	}
	mark, err := g.Mark(ctx)
	if err == nil && mark.IsZero() && !r.First {
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
	if r.Host != nil {
		g, err := r.Host.Guard(ctx, target)
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
