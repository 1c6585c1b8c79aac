//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// apart makes a process a group of its own. The kernel lets a stopped process
// go on when the others of its group exit and leave the group orphaned.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// freeze stops the agent, as a closed laptop, an overloaded machine or a
// debugger would. With its proxy, if proxy is set.
func (a *actor) freeze(proxy bool) error {
	if proxy {
		if err := syscall.Kill(a.proxyID(), syscall.SIGSTOP); err != nil {
			return err
		}
	}
	return a.cmd.Process.Signal(syscall.SIGSTOP)
}

// thaw lets the agent and its proxy go on.
func (a *actor) thaw() error {
	if id := a.proxyID(); id != 0 {
		_ = syscall.Kill(id, syscall.SIGCONT) // it may have ended
	}
	return a.cmd.Process.Signal(syscall.SIGCONT)
}

// kill kills the agent's proxy, or the server behind it.
func (a *actor) kill(what string) error {
	id := a.proxyID()
	if what == "server" {
		text, err := os.ReadFile(filepath.Join(a.p.folder, "server-"+a.name))
		if err != nil {
			return err
		}
		if id, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return err
		}
	}
	return syscall.Kill(id, syscall.SIGKILL)
}

func (a *actor) proxyID() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proxy
}
