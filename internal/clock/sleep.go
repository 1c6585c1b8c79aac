package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It returns ctx.Err() if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
