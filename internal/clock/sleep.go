package clock

import (
	"context"
	"time"

	"github.com/croft-dev/croft/internal/wait"
)

// Sleep waits for d, or until ctx ends. If ctx ended first, it returns why.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return wait.Ended(ctx)
	}
}
