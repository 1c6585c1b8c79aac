package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieTogether makes the kernel kill a child when this process ends.
func dieTogether(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// lowerPriority gives this process the lowest priority.
func lowerPriority() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) }

// leftovers lists the processes of a test binary's group, and those that left
// the group but still use its folder for temporary files. It omits zombies.
func leftovers(group int, folder string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		// The name, in parentheses, may contain anything. State, parent and
		// group follow it.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 3 || fields[0] == "Z" {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if fields[2] == strconv.Itoa(group) || bytes.Contains(env, []byte("\x00"+tmpEnv+"="+folder+"\x00")) {
			found = append(found, pid)
		}
	}
	return found
}

// unmountBelow unmounts file systems that a killed test has left below a
// folder.
func unmountBelow(folder string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], folder+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
}
