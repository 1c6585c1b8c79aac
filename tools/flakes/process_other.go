//go:build !unix

package main

import (
	"os"
	"os/exec"
	"time"
)

// canStop says that processes can be stopped here.
const canStop = false

func pause(*os.Process)  {}
func resume(*os.Process) {}

func own(*exec.Cmd) {}

func endGroup(p *os.Process) error { return p.Kill() }

func endLeftovers(int, string, time.Duration) bool { return false }

func lowerPriority() {}

func unmountBelow(string) {}
