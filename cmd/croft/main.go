// Command croft takes leases, runs work under them, and makes guards refuse the
// writes of stale owners.
//
// Every command has a file of its own, and root.go lists them. The commands of
// croft drill, hold, mcp, proxy and work have packages of their own in
// internal. Package cli in internal has what all of them share.
//
// A command runs on one goroutine, with few exceptions. The type job, readUntil
// and the packages in internal say which goroutines they have.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	_ "github.com/croft-dev/croft/internal/supervise/early" // in a warden process it does not return
)

func main() {
	// If the reader of a pipe goes away, the write then fails and the process
	// goes on. Commands that print a lease which nobody reads have to give it
	// back. Notify, not Ignore: children inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Main runs one command line and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{&cli.App{Stdin: stdin, Stdout: &cli.Sink{W: stdout}, Stderr: stderr}}
	root := a.rootCommand()
	root.SetArgs(args)
	if err := root.ExecuteContext(context.Background()); err != nil {
		if !a.Started {
			err = a.usageErrorOf(root, args, err)
		}
		return a.Fail(err)
	}
	return a.Stdout.Close(stderr)
}
