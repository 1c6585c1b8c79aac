//go:build !linux

package dir

import (
	"context"
	"errors"
	"fmt"
)

// watcher does nothing on this system.
type watcher struct{}

func newWatcher(*register) *watcher { return &watcher{} }

func (*watcher) close() {}

// Acts fails on this system: holders learn of operators' acts by renewing.
func (*register) Acts(context.Context) (<-chan string, error) {
	return nil, fmt.Errorf("a directory tells of operators' acts only on Linux; renew instead: %w",
		errors.ErrUnsupported)
}

// Announce tells nobody.
func (*register) Announce(context.Context, string) {}

// Watch fails on this system: callers ask again instead.
func (*register) Watch(context.Context, string) (<-chan struct{}, error) {
	return nil, fmt.Errorf("a directory wakes waiters only on Linux; ask again instead: %w",
		errors.ErrUnsupported)
}
