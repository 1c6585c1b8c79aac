//go:build unix && !linux

package main

import "syscall"

// dieTogether does nothing: only Linux ends children with their parent.
func dieTogether(*syscall.SysProcAttr) {}

func lowerPriority() {}

// leftovers is the process group of a test binary, if it still has members.
func leftovers(group int, _ string) []int {
	if syscall.Kill(-group, 0) != nil {
		return nil
	}
	return []int{-group}
}

func unmountBelow(string) {}
