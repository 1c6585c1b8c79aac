// Package chore is the housekeeping that stores do in the background, now and then, on behalf of whoever uses them.
package chore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Chore is done in the background: at most one at a time, none after Close. What it leaves the next one finds, and so its errors are nobody's.
type Chore struct {
	// Do does it. Required.
	Do func(ctx context.Context)
	// Every is how many grants lead to one on average; default 1024, negative: none does.
	Every int
	// Longest bounds one; default a minute.
	Longest time.Duration

	mu     sync.Mutex
	cancel context.CancelFunc // nil while none is under way
	closed bool
	done   sync.WaitGroup
}

// Granted begins one after one in so many grants: by chance and not by counting, so that processes which live for a single grant do their part as well.
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

// Close ends the one under way and waits for its end.
func (c *Chore) Close() {
	c.mu.Lock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.done.Wait()
}
