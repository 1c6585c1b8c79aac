// Package sweep runs a store's sweeps in the background, now and then, started
// by ordinary requests.
//
// A run starts by chance after a grant. At most one run is under way at a time,
// on a goroutine of its own. A mutex protects its cancel function and whether
// the Runner is closed. Close cancels the run and waits for it.
package sweep

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Runner starts sweeps. It returns no errors: the next sweep finds what the
// last one has left undone.
type Runner struct {
	// Do is one sweep. It must return soon after ctx ends. Required.
	Do func(ctx context.Context)
	// Every is how many grants there are per run, on average. Default: 1024.
	// Negative: no runs.
	Every int
	// Longest limits one run. Default: one minute.
	Longest time.Duration

	mu     sync.Mutex
	cancel context.CancelFunc // nil while no run is under way
	closed bool
	done   sync.WaitGroup
}

// Granted starts a run after one in Every grants. It decides by chance instead
// of counting, so that processes that live for a single grant do their part
// too.
func (r *Runner) Granted() {
	every, longest := r.Every, r.Longest
	if every == 0 {
		every = 1024
	}
	if longest <= 0 {
		longest = time.Minute
	}
	if every < 0 || rand.IntN(every) != 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, r.cancel = context.WithTimeout(context.Background(), longest)
	r.done.Go(func() {
		r.Do(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cancel()
		r.cancel = nil
	})
}

// Close ends the present run and waits for it. No run starts afterwards.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	if r.cancel != nil {
		r.cancel()
	}
	r.mu.Unlock()
	r.done.Wait()
}
