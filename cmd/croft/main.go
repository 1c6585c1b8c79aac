// Command croft takes leases, runs work under them, and makes the writes of stale owners bounce.
//
// Every command has a file of its own. What they share: app.go (streams, flags, the root command), open.go (which store), exit.go (the one
// table from errors to exit codes), output.go, table.go and show-safe text in plain.go, held.go (leases and stamps from files and the environment).
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/croft-dev/croft/internal/supervise/early" // a warden goes no further
)

func main() {
	// A reader that went away is then an error of the write instead of the end of the process: whoever prints a lease nobody reads
	// has to give it back. A handler rather than Ignore, because children inherit what is ignored.
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
			err = a.misused(root, args, err)
		}
		return a.fail(err)
	}
	return a.stdout.close(stderr)
}

// interruptible is ctx until the user or the system asks the command to end. Commands that wait use it; the others just die, and so do
// these when they are asked twice. Who is started not to hear of it, as a job in the background of a script is, does not, nor does what it starts: a
// signal that was caught once is no longer known to have been ignored.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	var asked []os.Signal
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(sig) {
			asked = append(asked, sig)
		}
	}
	if len(asked) == 0 { // NotifyContext would take that for all there are
		return context.WithCancel(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, asked...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
