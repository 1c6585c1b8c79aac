//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import "context"

// MaybeWarden does nothing: there are no wardens on this system.
func MaybeWarden() {}

func launch(ctx context.Context, args []string, o *Options, foreground bool) (body, <-chan event, error) {
	return launchGroup(ctx, args, o, foreground)
}

// groupRuns is told by the answer to the signal alone: these systems let nobody
// signal a group of zombies.
func groupRuns(int) bool { return true }
