//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import "context"

// MaybeWarden does nothing: there are no wardens on this system.
func MaybeWarden() {}

func launch(ctx context.Context, args []string, o *Options, foreground bool) (body, <-chan event, error) {
	return launchGroup(ctx, args, o, foreground)
}

// groupRuns is always true. On these systems signalling a group of zombies
// fails, so the caller's signal has already told.
func groupRuns(int) bool { return true }
