package testenv

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// roomy returns a folder in memory in which so many bytes have room, beside the
// programs of this machine. It returns "", the usual folder for temporary
// files, if there is none. A container may have one of 64 MiB.
func roomy(room uint64) string {
	const dir = "/dev/shm"
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil || stat.Bavail*uint64(stat.Bsize) < room || available() < room ||
		unix.Access(dir, unix.W_OK) != nil {
		return ""
	}
	return dir
}

// available returns how many bytes of memory programs can still get.
func available() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("\nMemAvailable:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB\n"))
	kb, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}

// InMemory returns a folder in memory that all tests of this binary share, or
// "" if memory is short. A process of its own removes it when the binary ends,
// however it ends: otherwise a killed test would keep the memory.
func InMemory() string { return inMemory().dir }

// memory is a folder in memory, and the pipe to the process that removes it.
// The pipe closes with this process, or if nothing refers to it any more.
type memory struct {
	dir  string
	pipe io.Closer
}

var inMemory = sync.OnceValue(func() memory {
	within := roomy(512 << 20)
	if within == "" {
		return memory{}
	}
	dir, err := os.MkdirTemp(within, "croft-test-")
	if err != nil {
		return memory{}
	}
	cleaner := exec.Command("sh", "-c", `read -r _; rm -rf -- "$1"`, "sh", dir)
	cleaner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it outlives a killed group
	pipe, err := cleaner.StdinPipe()
	if err = errors.Join(err, os.Chmod(dir, 0o711)); err == nil { // some tests are about other users
		err = cleaner.Start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return memory{}
	}
	return memory{dir, pipe}
})
