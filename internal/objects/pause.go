package objects

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// Pause waits before a request is sent again. It waits longer after more tries.
// The time is random, so that clients which failed together do not come back
// together. If ctx ends first, Pause returns why.
func Pause(ctx context.Context, try int) error {
	most := min(100*time.Millisecond<<min(try, 8), 5*time.Second)
	return clock.Sleep(ctx, most/2+rand.N(most/2))
}
