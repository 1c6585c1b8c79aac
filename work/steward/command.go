package steward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/supervise"
	"github.com/croft-dev/croft/work"
)

// The exit codes of a command that say more than that it failed. They are those
// of sysexits.
const (
	ExitRefused     = 65 // EX_DATAERR: not delivered, and never will be
	ExitUndelivered = 75 // EX_TEMPFAIL: not delivered; try again
)

// Command delivers effects by running a program. The effect's body is its
// standard input. Its environment has CROFT_IDEMPOTENCY_KEY, CROFT_ITEM,
// CROFT_QUEUE, CROFT_EFFECT, CROFT_TOKEN and CROFT_ATTEMPT. Exit code 0 means
// delivered. ExitUndelivered is tried again, and ExitRefused is not. After any
// other end, a signal included, the outcome is unknown.
//
// When Deliver returns, nothing of the program runs any more. Deliver kills the
// processes that the program has left behind, and all of it when the context
// ends. In the croft command that means every descendant on Linux. In other
// programs, and on other Unix systems, it means the program's process group. On
// Windows it means the program alone.
type Command struct {
	Args []string // the program and its arguments
	Dir  string   // default: the dispatcher's own
	Env  []string // default: the dispatcher's own

	// Scratch is a file or folder that is useless once the program has ended.
	// The caller removes it. If the croft command is killed while the program
	// runs, Scratch is removed with the program, on Linux.
	Scratch string
}

// stopDelay is how long Deliver tries to kill a program, and then waits for its
// output.
const stopDelay = 5 * time.Second

// Deliver runs the program.
func (c Command) Deliver(ctx context.Context, e work.Effect) error {
	if len(c.Args) == 0 {
		return Refused(fmt.Errorf("%w command: it is empty", fence.ErrInvalid))
	}
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	env = append(slices.Clip(env),
		"CROFT_IDEMPOTENCY_KEY="+e.EffectID.String(), "CROFT_ITEM="+string(e.Item),
		"CROFT_QUEUE="+e.Queue, "CROFT_EFFECT="+e.Name,
		"CROFT_TOKEN="+strconv.FormatInt(int64(e.Token), 10), "CROFT_ATTEMPT="+strconv.Itoa(e.Attempts))
	said := &tail{most: 512}
	code, err := c.run(ctx, env, e.Body, said)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("command %s: %w: %s", c.Args[0], err, strings.TrimSpace(said.text()))
	switch code {
	case ExitUndelivered, notStarted:
		return Undelivered(err)
	case ExitRefused:
		return Refused(err)
	}
	return err
}

// The codes of a program that has not run, and of a program that was stopped.
const (
	notStarted = -2 // os/exec uses -1
	cutShort   = -3
)

// run runs the program and kills all of it in the end. It returns the exit
// code, and an error unless the code is 0.
func (c Command) run(ctx context.Context, env []string, body []byte, said io.Writer) (code int, err error) {
	var p pipes
	defer p.close()
	stdin, err := p.from(body)
	if err != nil {
		return notStarted, err
	}
	out, err := p.to(said)
	if err != nil {
		return notStarted, err
	}
	opts := &supervise.Options{
		Env: env, Dir: c.Dir, Scratch: c.Scratch, Stdin: stdin, Stdout: out, Stderr: out,
		Aside: true, GroupWillDo: true,
	}
	// A warden ends the program in time even if the dispatcher is stopped.
	if deadline, ok := ctx.Deadline(); ok {
		opts.AllowFor = max(time.Until(deadline), 1)
	}
	if err := ctx.Err(); err != nil {
		return notStarted, err
	}
	child, err := supervise.Start(ctx, c.Args, opts)
	_ = stdin.Close() // the program has its own copy
	_ = out.Close()
	switch {
	case errors.Is(err, supervise.ErrUnsupported):
		return c.plain(ctx, env, body, said)
	case mayHaveRun(err):
		return cutShort, err
	case err != nil:
		return notStarted, err
	}
	select {
	case <-child.Done():
	case <-ctx.Done():
	}
	killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopDelay)
	defer cancel()
	ended := false
	select {
	case <-child.Done():
		ended = true
	default:
	}
	if err := child.Kill(killing); err != nil {
		return cutShort, err
	}
	p.drain()
	status, err := child.Wait()
	switch {
	case err != nil:
		return cutShort, err
	case !ended, status.Overdue:
		return cutShort, fmt.Errorf("its time was over, and all of it was killed: %v", status)
	case status.ExitCode() != 0:
		return status.ExitCode(), errors.New(status.String())
	}
	return 0, nil
}

// mayHaveRun reports whether a program may have run although Start failed.
// Start was cancelled, or lost its warden, before it heard that the program
// runs.
func mayHaveRun(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, supervise.ErrWardenLost)
}

// plain runs the program on systems without supervision.
func (c Command) plain(ctx context.Context, env []string, body []byte, said io.Writer) (code int, err error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.WaitDelay, cmd.Env = c.Dir, stopDelay, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), said, said
	if err := cmd.Start(); err != nil {
		return notStarted, err
	}
	err = cmd.Wait()
	return cmd.ProcessState.ExitCode(), err
}

// pipes connect this process and a program.
type pipes struct {
	files   []*os.File
	reading sync.WaitGroup
}

// from returns a file from which the program reads the data.
func (p *pipes) from(data []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.files = append(p.files, r, w)
	go func() {
		_, _ = w.Write(data) // fails if the program does not read it
		_ = w.Close()
	}()
	return r, nil
}

// to returns a file that the program writes to, and copies it to said.
func (p *pipes) to(said io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.files = append(p.files, r, w)
	p.reading.Go(func() { _, _ = io.Copy(said, r) })
	return w, nil
}

// drain waits until all output of the program is read. Nothing of it lives any
// more, so that is soon.
func (p *pipes) drain() {
	for _, f := range p.files {
		// Another process may have inherited the other end.
		_ = f.SetReadDeadline(time.Now().Add(stopDelay))
	}
	p.reading.Wait()
}

func (p *pipes) close() {
	for _, f := range p.files {
		_ = f.Close()
	}
	p.reading.Wait()
}

// tail keeps the last bytes written to it.
type tail struct {
	most int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) text() string { return strings.ToValidUTF8(string(t.kept), "?") }

// bare returns an error of the HTTP client without the URL, which may hold a
// password.
func bare(err error) error {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// escape encodes a name for use in a header.
func escape(name string) string { return fence.EscapeKey(name) }
