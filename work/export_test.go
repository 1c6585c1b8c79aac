package work

import (
	"context"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// RunOn is Run with a clock.
func RunOn(ctx context.Context, l Ledger, handlers map[string]Handler, o *Options, clk clock.Clock) error {
	return run(ctx, l, handlers, o, clk)
}

// BubbleClock is the clock of a synctest bubble.
type BubbleClock struct{}

var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (BubbleClock) Now() clock.Instant                { return clock.Instant(time.Since(bubbleStart)) }
func (BubbleClock) Timer(d time.Duration) clock.Timer { return bubbleTimer{time.NewTimer(d)} }

type bubbleTimer struct{ t *time.Timer }

func (b bubbleTimer) C() <-chan time.Time { return b.t.C }
func (b bubbleTimer) Stop()               { b.t.Stop() }
