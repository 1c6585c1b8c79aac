package dir

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

// guardLocker asks the kernel which process has the lock on a file. It knows at every moment, of a stopped process, too; 0 if it does not tell: the process
// is in another container, or the file system counts its devices differently.
func guardLocker(info fs.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for range 10 { // a long list lacks lines if other locks were dropped while it was read
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

// guardFindLock looks for a line like "1: FLOCK  ADVISORY  WRITE 4711 08:01:123456 0 EOF". Those who wait have an arrow behind the number.
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
