package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processTime returns the CPU time of a process in nanoseconds. It reads the
// process's own clock: the ticks in /proc are too coarse for many processes
// that do little each.
func processTime(pid int) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &at); err != nil {
		return 0 // the process has ended
	}
	return time.Duration(at.Nano())
}

// parentOf returns the parent of process pid.
func parentOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the program's name may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	return strconv.Atoi(fields[1])
}

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	word, _, _ := strings.Cut(string(text), " ")
	return word
}

// family returns a process and its children.
func family(pid int) []int {
	all := []int{pid}
	stats, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range stats {
		child, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if parent, err := parentOf(child); err == nil && parent == pid {
			all = append(all, child)
		}
	}
	return all
}
