package supervise

import (
	"cmp"
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// killGroup kills a process group. It returns the members that live, as far as
// they are known. The error is EPERM if it may kill none of them.
//
// The system's own answer is not enough. It also counts zombies, and these may
// stay for ever: in a container, orphans go to a process 1 that may never reap
// them.
func killGroup(pgid int) (left []int, err error) {
	err = unix.Kill(-pgid, syscall.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	living, dead, unread := groupMembers(pgid)
	if unread != nil {
		return []int{pgid}, err
	}
	if len(living) == 0 && len(dead) > 0 {
		return nil, nil
	}
	for _, p := range living {
		if err = send(p, syscall.SIGKILL); err == nil {
			break
		}
	}
	return pids(living), err // with an error and no pids, /proc hides them
}

// groupAlive lists the living members of a process group.
func groupAlive(pgid int) []int {
	living, _, _ := groupMembers(pgid)
	return pids(living)
}

// groupMembers lists the members of a process group, the oldest first.
func groupMembers(pgid int) (living, dead []proc, err error) {
	children, err := readFamily()
	if err != nil {
		return nil, nil, err
	}
	for _, siblings := range children {
		for _, p := range siblings {
			group, err := unix.Getpgid(p.pid)
			switch {
			case err != nil || group != pgid:
			case p.alive():
				living = append(living, p)
			default:
				dead = append(dead, p)
			}
		}
	}
	slices.SortFunc(living, func(a, b proc) int { return cmp.Compare(a.start, b.start) })
	return living, dead, nil
}
