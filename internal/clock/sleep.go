package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. If ctx ended first, it returns
// ctx.Err().
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
