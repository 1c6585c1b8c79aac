//go:build unix && !linux

package main

import "syscall"

// dieTogether does nothing: only Linux kills children with their parent.
func dieTogether(*syscall.SysProcAttr) {}

func lowerPriority() {}

// leftovers returns the process group of a test binary, if it has members.
func leftovers(group int, _ string) []int {
	if syscall.Kill(-group, 0) != nil {
		return nil
	}
	return []int{-group}
}

func unmountBelow(string) {}
