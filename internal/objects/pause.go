package objects

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause waits before a request is sent again, the longer the more often it was: at random, so that those who were turned away together do not come back together. It returns ctx's
// cause if that ends first.
func Pause(ctx context.Context, try int) error {
	most := min(100*time.Millisecond<<min(try, 8), 5*time.Second)
	t := time.NewTimer(most/2 + rand.N(most/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
