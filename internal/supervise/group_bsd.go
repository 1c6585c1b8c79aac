//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// MaybeWarden does nothing: there are no wardens on this system.
func MaybeWarden() {}

func launch(ctx context.Context, args []string, o *Options, foreground bool) (body, <-chan event, error) {
	return launchGroup(ctx, args, o, foreground)
}

// killGroup kills a process group. It returns the group's leader if members
// live: not every system lists the members. If the system refuses (EPERM), they
// are zombies or belong to another user. Zombies are reaped soon.
func killGroup(pgid int) (left []int, err error) {
	switch err := unix.Kill(-pgid, unix.SIGKILL); {
	case err == nil:
		return []int{pgid}, nil
	case errors.Is(err, unix.EPERM):
		return nil, err
	}
	return nil, nil
}

// groupAlive returns the group's leader if members live that this process may
// signal.
func groupAlive(pgid int) []int {
	if unix.Kill(-pgid, 0) != nil {
		return nil
	}
	return []int{pgid}
}
