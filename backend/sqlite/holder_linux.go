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

// The bytes that SQLite locks to write. With a write-ahead log it is a byte of
// FILE-shm. Without one it is one of two bytes of the database itself.
const (
	walWriteByte = 120
	pendingByte  = 0x40000000
	reservedByte = 0x40000001
)

// The bytes of FILE-shm that SQLite locks to read: each reader has a shared
// lock on one of them. They follow the bytes for writing, copying back and
// recovery.
const (
	firstReadByte = 123
	lastReadByte  = 127
)

// lockHolder asks the kernel which process has the write lock. It opens neither
// file, because closing one would drop all locks that this process has on it.
func lockHolder(file string) (process, bool) {
	for _, lock := range []struct {
		file  string
		first int64
		last  int64
	}{{file + "-shm", walWriteByte, walWriteByte}, {file, pendingByte, reservedByte}} {
		if pids := findLocks(lock.file, "WRITE", lock.first, lock.last); len(pids) > 0 {
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

// findLocks returns the processes that have locks of a kind, READ or WRITE, on
// the bytes first to last of a file. It asks again while the list may lack
// lines: see readLocks.
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

// readLocks reads the kernel's list of locks. One read returns a page at most.
// A longer list takes several reads, and lacks lines if locks were dropped
// between them. whole reports that one read was enough.
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

// lockIn reads a line like
//
//	1: POSIX  ADVISORY  WRITE 4711 08:01:123456 120 120
//
// and returns the process if the line is about such a lock, and 0 otherwise. A
// process that waits for a lock has an arrow after the number, so its line has
// one field more.
func lockIn(line, inode, kind string, first, last int64) (pid int) {
	field := strings.Fields(line)
	if len(field) != 8 || field[1] != "POSIX" || field[3] != kind || field[5] != inode {
		return 0
	}
	from, err1 := strconv.ParseInt(field[6], 10, 64)
	to, err2 := strconv.ParseInt(field[7], 10, 64) // "EOF" fails: SQLite never locks that far
	pid, err3 := strconv.Atoi(field[4])
	if err1 != nil || err2 != nil || err3 != nil || from > last || to < first {
		return 0
	}
	return pid
}

// describe reads the name of a process and whether it is stopped.
func describe(pid int) process {
	p := process{pid: pid, name: "?"}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p
	}
	// The line is "4711 (name) T …", and the name may contain anything.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open || len(stat) < end+3 {
		return p
	}
	p.name, p.stopped = string(stat[open+1:end]), stat[end+2] == 'T' || stat[end+2] == 't'
	return p
}
