package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// proc is one process as /proc shows it.
type proc struct {
	pid, parent int
	state       byte // as in proc(5): R, S, D, T, t, Z, …
	threads     int
	start       uint64 // clock ticks since boot; pid and start identify a process for good
}

// alive reports whether the process can still run anything. A zombie is dead,
// unless only its first thread has ended. Then the other threads go on under a
// leader shown as Z.
func (p proc) alive() bool {
	switch p.state {
	case 'X', 'x':
		return false
	case 'Z':
		return p.threads > 1
	}
	return true
}

// stopped reports whether the process is stopped, by a signal or by a debugger.
func (p proc) stopped() bool { return p.state == 'T' || p.state == 't' }

// readProc reads one process. ok is false if there is none.
func readProc(pid int) (p proc, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	return parseStat(text)
}

// parseStat reads proc_pid_stat(5). The name in parentheses may contain
// anything, also parentheses and line breaks. So it counts the fields from the
// last parenthesis.
func parseStat(text []byte) (proc, bool) {
	open, closing := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || closing < open {
		return proc{}, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	if err != nil || pid < 1 {
		return proc{}, false
	}
	const state, parent, threads, start = 0, 1, 17, 19 // field numbers of proc_pid_stat(5), less 3
	fields := bytes.Fields(text[closing+1:])
	if len(fields) <= start || len(fields[state]) != 1 {
		return proc{}, false
	}
	p := proc{pid: pid, state: fields[state][0]}
	if p.parent, err = strconv.Atoi(string(fields[parent])); err != nil {
		return proc{}, false
	}
	if p.threads, err = strconv.Atoi(string(fields[threads])); err != nil {
		return proc{}, false
	}
	if p.start, err = strconv.ParseUint(string(fields[start]), 10, 64); err != nil {
		return proc{}, false
	}
	return p, true
}

// ignoredMask returns the signals that this process ignores by the system's
// account: bit 0 is signal 1. Without /proc it returns none.
func ignoredMask() uint64 {
	text, _ := os.ReadFile("/proc/self/status")
	_, field, _ := bytes.Cut(text, []byte("\nSigIgn:\t"))
	field, _, _ = bytes.Cut(field, []byte("\n"))
	mask, err := strconv.ParseUint(string(field), 16, 64)
	if err != nil {
		return 0
	}
	return mask
}

// family maps every process to its children.
type family map[int][]proc

// readFamily reads all processes. It is not a snapshot: processes come and go
// while it reads. To find a whole tree, read again until nothing new appears.
func readFamily() (family, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("supervise: the process table cannot be read; mount /proc: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("supervise: the process table cannot be read; mount /proc: %w", err)
	}
	children := make(family)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	return children, nil
}

// below lists the descendants of root, parents before their children. It leaves
// out root itself, and the subtrees of skip.
func (f family) below(root int, skip map[int]bool) []proc {
	var found []proc
	seen := map[int]bool{root: true}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range f[next[0]] {
			// A pid may be reused while the table is read, so guard against
			// cycles.
			if skip[p.pid] || seen[p.pid] {
				continue
			}
			seen[p.pid] = true
			found = append(found, p)
			next = append(next, p.pid)
		}
	}
	return found
}
