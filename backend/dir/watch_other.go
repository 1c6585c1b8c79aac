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

// Acts are not told of on this system: holders learn of them by renewing.
func (*register) Acts(context.Context) (<-chan string, error) {
	return nil, fmt.Errorf("a directory tells of operators' acts only on Linux; renew instead: %w",
		errors.ErrUnsupported)
}

// Announce tells nobody.
func (*register) Announce(context.Context, string) {}

// Watch is not to be had on this system: callers ask again instead.
func (*register) Watch(context.Context, string) (<-chan struct{}, error) {
	return nil, fmt.Errorf("a directory wakes waiters only on Linux; ask again instead: %w", errors.ErrUnsupported)
}
