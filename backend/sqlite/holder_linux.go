package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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

// Readers share one of the five bytes behind those of writing, copying back and recovery.
const (
	firstReadByte = 123
	lastReadByte  = 127
)

// lockHolder asks the kernel which process has the write lock. It opens neither file: closing them would drop the locks that this process has.
func lockHolder(file string) (process, bool) {
	for _, place := range []struct {
		file  string
		first int64
		last  int64
	}{{file + "-shm", walWriteByte, walWriteByte}, {file, pendingByte, reservedByte}} {
		if pids := findLocks(place.file, "WRITE", place.first, place.last); len(pids) > 0 {
			return describe(pids[0]), true
		}
	}
	return process{}, false
}

// logReaders asks the kernel which processes read from the log.
func logReaders(file string) []process {
	var all []process
	for _, pid := range findLocks(file+"-shm", "READ", firstReadByte, lastReadByte) {
		all = append(all, describe(pid))
	}
	return all
}

// findLocks is who has locks that cover some of the bytes of a file, each once.
func findLocks(file, kind string, first, last int64) []int {
	info, err := os.Stat(file)
	if err != nil {
		return nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for range 20 {
		locks, whole, err := readLocks()
		if err != nil {
			return nil
		}
		var pids []int
		for line := range strings.Lines(locks) {
			if pid := lockIn(line, inode, kind, first, last); pid > 0 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
		if whole || len(pids) > 0 {
			return pids
		}
	}
	return nil
}

// readLocks reads the kernel's list of locks. Only one read sees the list at one
// moment, and it returns a page at most. Where the list is longer, it is not
// whole: it lacks lines if other locks were dropped between two reads.
func readLocks() (locks string, whole bool, err error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	var text strings.Builder
	buf := make([]byte, 1<<16)
	for reads := 0; ; reads++ {
		n, err := f.Read(buf)
		text.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return text.String(), reads <= 1, nil
		}
		if err != nil {
			return "", false, err
		}
	}
}

// lockIn reads a line like "1: POSIX  ADVISORY  WRITE 4711 08:01:123456 120 120". Those who wait have an arrow behind the number.
func lockIn(line, inode, kind string, first, last int64) (pid int) {
	field := strings.Fields(line)
	if len(field) != 8 || field[1] != "POSIX" || field[3] != kind || field[5] != inode {
		return 0
	}
	from, err1 := strconv.ParseInt(field[6], 10, 64)
	to, err2 := strconv.ParseInt(field[7], 10, 64) // EOF is no number: nobody locks so much
	pid, err3 := strconv.Atoi(field[4])
	if err1 != nil || err2 != nil || err3 != nil || from > last || to < first {
		return 0
	}
	return pid
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
