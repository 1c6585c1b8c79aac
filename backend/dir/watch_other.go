//go:build !linux

package dir

import (
	"context"
	"errors"
	"fmt"
)

// watcher wakes nobody on this system.
type watcher struct{}

func (*watcher) close() {}

// Watch is not to be had on this system: callers ask again instead.
func (*register) Watch(context.Context, string) (<-chan struct{}, error) {
	return nil, fmt.Errorf("a directory wakes waiters only on Linux; ask again instead: %w", errors.ErrUnsupported)
}
