//go:build !unix

package main

import (
	"errors"
	"os"
)

var errNoStop = errors.New("this system cannot stop a process (SIGSTOP): run the example on Linux or macOS")

func freeze() error                  { return errNoStop }
func untilStopped(*os.Process) error { return errNoStop }
func wake(*os.Process) error         { return errNoStop }
