package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// Random returns a random source and logs its seed. To repeat a failure, put
// the seed into the environment variable of the given name.
func Random(tb testing.TB, variable string) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	if fixed := os.Getenv(variable); fixed != "" {
		n, err := strconv.ParseUint(fixed, 10, 64)
		if err != nil {
			tb.Fatalf("%s: %v", variable, err)
		}
		seed = n
	} else {
		tb.Logf("repeat with %s=%d", variable, seed)
	}
	return rand.New(rand.NewPCG(seed, 0))
}

// Pass lets a clock reach a moment: it advances the clock if it can, and
// otherwise waits, as long as ctx lives. A reading of the clock may cost a
// request, so Pass reads it seldom: first after the time that is left, and then
// less and less often while a coarse clock stands still.
func Pass(ctx context.Context, tb testing.TB, until time.Time, now func() time.Time, advance func(d time.Duration)) {
	tb.Helper()
	if whole := tenure.Time(until); whole.Before(until) {
		until = whole.Add(time.Microsecond) // clocks of records have whole microseconds
	}
	const shortest, longest = time.Millisecond, 200 * time.Millisecond
	var last time.Time
	still := shortest
	for {
		at := now()
		left := until.Sub(at)
		if left <= 0 {
			return
		}
		if advance != nil {
			advance(left)
			if left = until.Sub(now()); left > 0 {
				tb.Fatalf("the harness advanced the clock and Now is still %s short", left)
			}
			return
		}
		wait := max(left, shortest)
		if at.Equal(last) {
			still = min(2*still, longest)
			wait = still
		} else {
			last, still = at, min(max(left, shortest), longest)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			tb.Fatalf("the clock did not reach %s in time", until)
		}
	}
}

// Watch makes a context that ends if the check does not call alive for the time
// of patience. It catches a check that hangs, not a slow one. The context also
// ends with tb.
func Watch(tb testing.TB, patience time.Duration) (ctx context.Context, alive func()) {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(tb.Context())
	timer := time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("%w: the check got no answer for %s", context.DeadlineExceeded, patience))
	})
	tb.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx, func() {
		// A timer that has fired is not reset: its context has ended.
		if ctx.Err() == nil {
			timer.Reset(patience)
		}
	}
}

// Together calls f once for each of n contenders, all at the same moment, and
// waits for them.
func Together(n int, f func(i int)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}
