//go:build !unix

package main

import (
	"errors"
	"os/exec"
)

var errNoStop = errors.New("this system cannot stop a process (SIGSTOP): run the example on Linux or macOS")

func apart(*exec.Cmd) {}

func (a *actor) freeze(bool) error { return errNoStop }
func (a *actor) thaw() error       { return errNoStop }
func (a *actor) kill(string) error { return errNoStop }
