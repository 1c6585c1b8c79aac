// Command croft takes leases, runs work under them, and makes guards refuse the
// writes of stale owners.
//
// Every command has a file of its own. They share app.go (streams and flags),
// root.go (the root command), open.go (opening the store), exit.go (the only
// table from errors to exit codes), output.go, table.go and records.go
// (printing), plain.go (text that is safe to show), and held.go (leases and
// stamps from files and the environment).
//
// A command runs on one goroutine, with these exceptions. Opening a store or a
// ledger, and asking whether an owner is current, run on a goroutine that is
// left behind if a system call never returns. A progress bar, the metrics, a
// job under a lease and a worker have goroutines, too. The types progress,
// metrics, job and queueWorker say who does what.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

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
	a := &app{stdin: stdin, stdout: &sink{w: stdout}, stderr: stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	if err := root.ExecuteContext(context.Background()); err != nil {
		if !a.started {
			err = a.usageErrorOf(root, args, err)
		}
		return a.fail(err)
	}
	return a.stdout.close(stderr)
}
