package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/supervise"
)

// commandOutput is the output of a command, as the content of a write. It ends
// with io.EOF only if the command has exited with code 0 and nobody holds its
// output any more. Otherwise the last Read fails, so that the guard changes
// nothing.
//
// The first Read starts the command. One goroutine waits until the command has
// exited or ctx has ended. In the first case it wakes a Read that waits for
// more. In the second it kills everything that is left of the command. That
// closes the last end of the pipe, and Read meets its end.
//
// mu makes sure that Close either finds the command or prevents its start.
type commandOutput struct {
	ctx     context.Context
	app     *app
	command []string

	mu  sync.Mutex
	err error // why the command has not started, or will not
	// child and output are nil before the first Read, and then do not change.
	child  *supervise.Child
	output *os.File
}

// leftWait is how long a process that the command has left behind may keep the
// output open without printing anything. "gzip" in "make > >(gzip)" ends a
// moment after the shell.
const leftWait = 2 * time.Second

// commandError says that the command of a write has not succeeded.
type commandError struct {
	code int
	why  string
}

func (e *commandError) Error() string { return e.why }

// Read implements io.Reader.
func (o *commandOutput) Read(p []byte) (int, error) {
	if err := o.begin(); err != nil {
		return 0, err
	}
	n, err := o.read(p)
	left := errors.Is(err, os.ErrDeadlineExceeded)
	if left || errors.Is(err, io.EOF) {
		err = o.end()
	}
	if left && errors.Is(err, io.EOF) {
		err = &commandError{cli.ExitFailed, "the command has ended, but a process that it left behind still held " +
			"its output, and was killed; let the command wait for it, or send its output elsewhere"}
	}
	return n, err
}

// begin starts the command, unless it has begun or Close was called.
func (o *commandOutput) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.child == nil && o.err == nil {
		o.err = o.start()
	}
	return o.err
}

// read reads from the pipe. If the command has exited, it waits no longer than
// leftWait.
func (o *commandOutput) read(p []byte) (int, error) {
	for {
		exited := false
		select {
		case <-o.child.Done():
			exited = true
			_ = o.output.SetReadDeadline(time.Now().Add(leftWait))
		default:
		}
		n, err := o.output.Read(p)
		if exited || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

func (o *commandOutput) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	child, err := supervise.Start(o.ctx, o.command, &supervise.Options{
		Env:   cli.PipeEnv(),
		Stdin: fileOf(o.app.Stdin), Stdout: w, Stderr: fileOf(o.app.Stderr),
	})
	_ = w.Close() // the command has this end now
	if err != nil {
		_ = r.Close()
		var start *supervise.StartError
		if errors.As(err, &start) {
			return &commandError{start.ExitCode(), err.Error()}
		}
		return err
	}
	o.child, o.output = child, r
	go func() {
		select {
		case <-child.Done():
			_ = r.SetReadDeadline(time.Now()) // wakes a Read
		case <-o.ctx.Done():
			_ = o.kill()
		}
	}()
	return nil
}

// kill kills everything that is left of the command.
func (o *commandOutput) kill() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), cli.KillTimeout)
	defer cancel()
	return o.child.Kill(ctx)
}

// end waits for the command. It returns io.EOF if the command has succeeded.
func (o *commandOutput) end() error {
	select {
	case <-o.child.Done():
	case <-o.ctx.Done():
	}
	// The signal that ended ctx has also reached the command. It may have
	// exited with code 0 because of that.
	if err := o.ctx.Err(); err != nil {
		return err
	}
	if err := o.kill(); err != nil {
		return &commandError{cli.ExitFailed, err.Error()}
	}
	status, err := o.child.Wait()
	if err != nil {
		return &commandError{cli.ExitFailed, err.Error()}
	}
	if code := status.ExitCode(); code != 0 {
		how := "ended with"
		if status.Signal != 0 {
			how = "was"
		}
		return &commandError{code, fmt.Sprintf("the command %s %v", how, status)}
	}
	return io.EOF
}

// Close kills the command if it still runs. A Read that a write has left behind
// fails then, and does not start the command.
func (o *commandOutput) Close() error {
	o.mu.Lock()
	if o.err == nil {
		o.err = os.ErrClosed
	}
	started := o.child != nil
	o.mu.Unlock()
	if !started {
		return nil
	}
	err := o.kill()
	_ = o.output.Close()
	return err
}

// commandView is a failed command in JSON.
type commandView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Exit    int    `json:"exit"`
}

// commandFailed tells the user that the target is as it was, and ends with the
// command's own code.
func (a *app) commandFailed(target string, failed *commandError) error {
	message := fmt.Sprintf("%s; %s is unchanged", failed.why, target)
	if a.JSON {
		a.Print(map[string]any{"error": commandView{"command", a.Redact(message), failed.code}})
	} else {
		fmt.Fprintf(a.Stderr, "croft: %s\n", cli.Lines(a.Redact(message)))
	}
	return cli.ExitError(failed.code)
}
