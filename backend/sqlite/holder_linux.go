package sqlite

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where SQLite's locks lie: the write lock of a write-ahead log is a byte of the shared memory's file; without such a log it is one of two bytes of the database itself.
const (
	walWriteByte = 120
	pendingByte  = 0x40000000
	reservedByte = 0x40000001
)

// lockHolder asks the kernel which process has the write lock. It opens neither file: closing them would drop the locks that this process has.
func lockHolder(file string) (process, bool) {
	for _, place := range []struct {
		file  string
		first int64
		last  int64
	}{{file + "-shm", walWriteByte, walWriteByte}, {file, pendingByte, reservedByte}} {
		info, err := os.Stat(place.file)
		if err != nil {
			continue
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			return process{}, false
		}
		inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
		if pid := findLock(bufio.NewScanner(bytes.NewReader(locks)), inode, place.first, place.last); pid > 0 {
			return describe(pid), true
		}
	}
	return process{}, false
}

// findLock looks for a line like "1: POSIX  ADVISORY  WRITE 4711 08:01:123456 120 120" that covers a byte. Those who wait have an arrow behind the number.
func findLock(lines *bufio.Scanner, inode string, first, last int64) int {
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) != 8 || field[1] != "POSIX" || field[3] != "WRITE" || field[5] != inode {
			continue
		}
		from, err1 := strconv.ParseInt(field[6], 10, 64)
		to, err2 := strconv.ParseInt(field[7], 10, 64) // EOF is no number: nobody locks so much
		pid, err3 := strconv.Atoi(field[4])
		if err1 == nil && err2 == nil && err3 == nil && from <= last && to >= first && pid > 0 {
			return pid
		}
	}
	return 0
}

// describe tells what a process is called, and whether it is stopped.
func describe(pid int) process {
	p := process{pid: pid, name: "?"}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p
	}
	// 4711 (name) T …; the name may have anything in it.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open || len(stat) < end+3 {
		return p
	}
	p.name, p.stopped = string(stat[open+1:end]), stat[end+2] == 'T' || stat[end+2] == 't'
	return p
}
