package testenv

import "golang.org/x/sys/unix"

// roomy returns a folder in memory for the files of servers that sync nothing.
// It returns "", the usual folder for temporary files, if memory is short.
func roomy() string {
	const dir, room = "/dev/shm", 4 << 30
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil || stat.Bavail*uint64(stat.Bsize) < room {
		return ""
	}
	return dir
}
