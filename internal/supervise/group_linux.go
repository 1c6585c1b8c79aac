package supervise

import "golang.org/x/sys/unix"

// groupRuns reports whether a living process is in the group. The system also
// counts zombies, and these may stay for ever: in a container, orphans go to a
// process 1 that may never reap them.
func groupRuns(pgid int) bool {
	children, err := readFamily()
	if err != nil {
		return true
	}
	for _, siblings := range children {
		for _, p := range siblings {
			if group, err := unix.Getpgid(p.pid); err == nil && group == pgid && p.alive() {
				return true
			}
		}
	}
	return false
}
