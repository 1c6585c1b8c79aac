package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/supervise"
)

// commandOutput is the output of a command, as the content of a write. It ends
// with io.EOF only if the command has exited with code 0. Otherwise the last
// Read fails, so that the guard changes nothing.
//
// The first Read starts the command. One goroutine waits until the command has
// exited or ctx has ended. Then it kills everything that is left of the
// command. That closes the last end of the pipe, and Read meets its end.
type commandOutput struct {
	ctx     context.Context
	app     *app
	command []string

	child  *supervise.Child // nil before the first Read
	output *os.File
	killed chan error // closed after it got the outcome of the kill
	err    error      // of a command that has not started
}

// commandError says that the command of a write has not succeeded.
type commandError struct {
	code int
	why  string
}

func (e *commandError) Error() string { return e.why }

// Read implements io.Reader.
func (o *commandOutput) Read(p []byte) (int, error) {
	if o.child == nil && o.err == nil {
		o.err = o.start()
	}
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.output.Read(p)
	if errors.Is(err, io.EOF) {
		err = o.end()
	}
	return n, err
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
	o.child, o.output, o.killed = child, r, make(chan error, 1)
	go func() {
		defer close(o.killed)
		select {
		case <-child.Done():
		case <-o.ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), cli.KillTimeout)
		defer cancel()
		o.killed <- child.Kill(ctx)
	}()
	return nil
}

// end waits for the command. It returns io.EOF if the command has succeeded.
func (o *commandOutput) end() error {
	select {
	case <-o.child.Done():
	case <-o.ctx.Done():
		return o.ctx.Err()
	}
	if err := <-o.killed; err != nil {
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

// Close kills the command if it still runs. It is not called during a Read,
// except one that a write has left behind.
func (o *commandOutput) Close() error {
	if o.child == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), cli.KillTimeout)
	defer cancel()
	err := o.child.Kill(ctx)
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
