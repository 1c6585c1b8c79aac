// Package chore runs the housekeeping of a store in the background, now and
// then, started by ordinary requests.
//
// A run starts by chance after a grant. At most one run is under way at a time,
// on a goroutine of its own. A mutex protects its cancel function and whether
// the Chore is closed. Close cancels the run and waits for it.
package chore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Chore is a housekeeping task. It returns no errors: the next run finds what
// the last one has left undone.
type Chore struct {
	// Do is one run. It must return soon after ctx ends. Required.
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
func (c *Chore) Granted() {
	every, longest := c.Every, c.Longest
	if every == 0 {
		every = 1024
	}
	if longest <= 0 {
		longest = time.Minute
	}
	if every < 0 || rand.IntN(every) != 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, c.cancel = context.WithTimeout(context.Background(), longest)
	c.done.Go(func() {
		c.Do(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cancel()
		c.cancel = nil
	})
}

// Close ends the present run and waits for it. No run starts afterwards.
func (c *Chore) Close() {
	c.mu.Lock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.done.Wait()
}
