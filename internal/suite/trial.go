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

// Random is a source of chance that is written down, so that a failure can be had again: by a number in the environment under the given name.
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

// Pass lets a clock reach a moment: by moving it where that is possible,
// otherwise by waiting for it for as long as ctx lives. It reads the clock as
// seldom as it can, because a reading may be a request: once after the time that
// is left, and less and less often while a coarse clock stands still.
func Pass(ctx context.Context, tb testing.TB, until time.Time, now func() time.Time, advance func(d time.Duration)) {
	tb.Helper()
	if whole := tenure.Time(until); whole.Before(until) {
		until = whole.Add(time.Microsecond) // the clocks of records have no less
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

// Watch is a context that ends when the check has not called alive for as long
// as patience: a bound on hanging, not on speed. It ends with tb, too.
func Watch(tb testing.TB, patience time.Duration) (ctx context.Context, alive func()) {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(tb.Context())
	timer := time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("%w: the check got no answer for %s", context.DeadlineExceeded, patience))
	})
	tb.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx, func() {
		// A timer that has fired stays as it is: its context has ended.
		if ctx.Err() == nil {
			timer.Reset(patience)
		}
	}
}

// Together calls f once for each of n contenders, all released at one moment, and waits for them.
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
