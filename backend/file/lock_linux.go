package file

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// guardLocker asks the kernel which process has the lock on a file. The kernel
// knows even if that process is stopped. guardLocker returns 0 if the kernel
// does not tell: the process is in another container, or the file system
// numbers its devices differently.
func guardLocker(info fs.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for range 10 { // the list lacks lines if locks are dropped while it is read
		locks, err := os.Open("/proc/locks")
		if err != nil {
			return 0
		}
		pid := guardFindLock(bufio.NewScanner(locks), file)
		_ = locks.Close()
		if pid > 0 {
			return pid
		}
	}
	return 0
}

// guardFindLock looks for a line like "1: FLOCK  ADVISORY  WRITE 4711
// 08:01:123456 0 EOF". A waiting process has an arrow behind the number, so its
// fields do not match.
func guardFindLock(lines *bufio.Scanner, file string) int {
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 6 || field[1] != "FLOCK" || field[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(field[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
