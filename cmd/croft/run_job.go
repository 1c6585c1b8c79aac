package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/supervise"
)

// resumeTimeout bounds the question whether a lease that lapsed while the
// machine slept can be resumed.
const resumeTimeout = 5 * time.Second

// job is a command that runs under a lease.
//
// run waits for the end of the command or of the lease, and then settles the
// other. When the terminal continues the command, the supervisor calls
// MayContinue on a goroutine of its own. Both use held, so mu guards it.
type job struct {
	app    *app
	opts   runOptions
	status *runStatus
	child  *supervise.Child

	tally   *cli.Tally // counts writes of the command; nil without metrics
	scratch string     // the folder with the command's lease; "" before it is made

	// mu guards held.
	mu   sync.Mutex
	held *croft.Lease
}

// lease returns the command's lease. After a resume it is another one, with the
// same token.
func (j *job) lease() *croft.Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held
}

// start starts the command, unless ctx ends before. An interrupted run must not
// leave the key taken.
func (j *job) start(ctx context.Context, command []string) error {
	env, err := j.environment()
	if err != nil {
		return fmt.Errorf("%w: %w", errHandOver, err)
	}
	j.status.token, j.status.verdict = j.lease().Token(), verdictRunning
	j.status.write(j.app.Stderr)

	j.child, err = supervise.Start(ctx, command, &supervise.Options{
		Env: env, Scratch: j.scratch, AllowFor: max(j.lease().Remaining(), time.Millisecond),
		Stdin: fileOf(j.app.Stdin), Stdout: fileOf(j.app.Stdout.W), Stderr: fileOf(j.app.Stderr),
		MayContinue: func() bool { return j.lease().Remaining() > 0 },
	})
	return err
}

// errHandOver says that the files for the command could not be made.
var errHandOver = errors.New("the lease cannot be handed to the command")

// notStarted releases the lease of a command that did not start.
func (j *job) notStarted(ctx context.Context, err error) error {
	defer j.tidy()
	_ = j.lease().Fail(ctx)
	var start *supervise.StartError
	switch {
	case errors.As(err, &start):
		return j.end(verdictNotStarted, start.ExitCode(), err.Error())
	case errors.Is(err, context.Canceled):
		return j.end(verdictNotStarted, cli.ExitInterrupted, "interrupted before the command was started")
	case errors.Is(err, errHandOver):
		return j.end(verdictNotStarted, cli.ExitUnknown, err.Error())
	}
	return j.end(verdictNotStarted, cli.ExitFailed, err.Error())
}

// run waits for the command and the lease, and settles both.
func (j *job) run(ctx context.Context) error {
	defer j.tidy()
	for {
		if done := j.watch(); done {
			return j.ended(ctx)
		}
		// The lease has ended before the command.
		if lost := j.lease().Err(); !j.resume(ctx) {
			return j.lost(ctx, lost)
		}
	}
}

// watch waits for the end of the command (true) or of the lease (false).
// Meanwhile it tells the warden how long the command may live. The warden kills
// the command then if this process is stopped or starved.
func (j *job) watch() (done bool) {
	for {
		// At zero the last permission stands.
		if left := j.lease().Remaining(); left > 0 {
			_ = j.child.AllowFor(left)
		}
		select {
		case <-j.child.Done():
			return true
		case <-j.lease().Done():
			return false
		// The command may have changed the TTL.
		case <-time.After(min(max(j.lease().Deed().TTL/20, 10*time.Millisecond), time.Second)):
		}
	}
}

// ended releases the lease after the command has exited by itself.
func (j *job) ended(ctx context.Context) error {
	status, err := j.child.Wait()
	if err == nil {
		j.status.command(status)
	}
	if err := j.kill(ctx); err != nil {
		// Parts of the command still run. Let the lease lapse, and do not hand
		// the key on.
		return j.end(verdictFailed, cli.ExitFailed, err.Error()+"; the lease is not released and lapses by itself")
	}
	if err != nil { // it is not known how the command ended
		_ = j.lease().Fail(ctx)
		return j.end(verdictFailed, cli.ExitFailed, err.Error())
	}
	if status.Overdue {
		return j.overdue(ctx)
	}
	code := status.ExitCode()
	release := j.lease().Release
	if code != 0 {
		release = j.lease().Fail
	}
	switch err := release(ctx); {
	case errors.Is(err, croft.ErrLost), errors.Is(err, croft.ErrNotOwned):
		return j.end(verdictLost, cli.ExitNotOwned,
			fmt.Sprintf("%v; the command ended (%v) after the lease had", err, status))
	case err != nil:
		fmt.Fprintf(j.app.Stderr, "croft: the lease could not be released and lapses by itself: %s\n",
			cli.Lines(j.app.Redact(err.Error())))
	}
	if code != 0 {
		how := "ended with"
		if status.Signal != 0 {
			how = "was"
		}
		return j.end(verdictFailed, code, fmt.Sprintf("%q: the command %s %v", j.lease().Key(), how, status))
	}
	return j.end(verdictDone, 0, "")
}

// overdue ends a run whose command the warden has killed in time, while this
// process was stopped or starved.
func (j *job) overdue(ctx context.Context) error {
	j.status.loss = croft.Expired
	// The lease may have been resumed since, and nothing of the command lives.
	_ = j.lease().Fail(ctx)
	return j.end(verdictLost, cli.ExitNotOwned,
		fmt.Sprintf("lease lost: %q (token %d): its time ran out while croft stood still; the command was killed",
			j.lease().Key(), j.lease().Token()))
}

// resume tries to resume a lease that lapsed while this machine slept or this
// process was stopped. It freezes the command meanwhile.
func (j *job) resume(ctx context.Context) bool {
	if j.lease().Remaining() > 0 || !byTime(j.lease().Err()) {
		// There is time to stop the command in order, or the lease was taken
		// away.
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	if err := j.child.Freeze(ctx); err != nil {
		return false
	}
	if hasEnded(j.child) {
		return false // the command has ended
	}
	lease, err := j.lease().Resume(ctx)
	if err != nil {
		return false
	}
	fmt.Fprintf(j.app.Stderr, "croft: %q lapsed while this machine or process stood still; nobody else was granted "+
		"it, going on\n", lease.Key())
	j.mu.Lock()
	j.held = lease
	j.mu.Unlock()
	_ = j.child.AllowFor(lease.Remaining())
	j.child.Thaw()
	return true
}

// byTime reports whether a lease ended because time passed, not because
// somebody ended it.
func byTime(err error) bool {
	var lost *croft.LostError
	return errors.As(err, &lost) && (lost.Loss == croft.Expired || lost.Loss == croft.Unreachable)
}

// lost stops the command of a lease that has ended. If another owner may have
// the key already, it kills the command at once. Otherwise the command gets
// TERM and its grace.
func (j *job) lost(ctx context.Context, err error) error {
	var lost *croft.LostError
	if errors.As(err, &lost) {
		j.status.loss = lost.Loss
	}
	orderly := j.lease().Remaining() > 0 && lost != nil && lost.Loss != croft.Superseded &&
		lost.Loss != croft.TakenOver && lost.Loss != croft.Released
	how := "killed"
	switch {
	case hasEnded(j.child):
		how = "over by then"
	case orderly:
		how = "stopped"
		_ = j.child.Terminate()
		timer := time.NewTimer(min(j.opts.grace, j.lease().Remaining()))
		select {
		case <-j.child.Done():
		case <-timer.C:
			how = "killed after its grace"
		}
		timer.Stop()
	}
	message := fmt.Sprintf("%v; the command was %s", err, how)
	if err := j.kill(ctx); err != nil {
		message = err.Error() + "; " + message
	} else {
		if status, err := j.child.Wait(); err == nil {
			j.status.command(status)
		}
		// Nothing of the command lives, so others need not wait for the
		// deadline.
		if orderly {
			_ = j.lease().Fail(ctx)
		}
	}
	return j.end(verdictLost, cli.ExitNotOwned, message)
}

// hasEnded reports whether the command itself has ended. Its descendants may
// live.
func hasEnded(child *supervise.Child) bool {
	select {
	case <-child.Done():
		return true
	default:
		return false
	}
}

// kill kills everything that is left of the command.
func (j *job) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cli.KillTimeout)
	defer cancel()
	return j.child.Kill(ctx)
}

// end reports the outcome, in the last line on stderr and in the status file.
func (j *job) end(v verdict, code int, message string) error {
	message = j.app.Redact(message)
	j.status.verdict, j.status.exit, j.status.message = v, code, message
	j.status.write(j.app.Stderr)
	switch {
	case message == "":
	case j.app.JSON && v != verdictFailed:
		name := "unknown"
		switch {
		case v == verdictLost:
			name = "not_owned"
		case code == supervise.CodeNotFound || code == supervise.CodeNotExecutable:
			name = "invalid"
		}
		f := cli.Facts{
			{Name: "code", Value: name},
			{Name: "message", Value: message},
			{Name: "key", Value: j.lease().Key()},
			{Name: "token", Value: j.lease().Token()},
		}
		if v == verdictLost {
			f.Add("why", j.status.loss)
		}
		j.app.Print(map[string]any{"error": f})
	default:
		fmt.Fprintf(j.app.Stderr, "croft: %s\n", cli.Lines(message))
	}
	return cli.ExitError(code)
}

// environment returns the command's environment. It makes the folder with the
// lease.
func (j *job) environment() (env []string, err error) {
	name, _, err := j.app.StoreName()
	if err != nil {
		return nil, err
	}
	if j.scratch, err = os.MkdirTemp("", "croft-"); err != nil {
		return nil, err
	}
	file := filepath.Join(j.scratch, "lease")
	if err := os.WriteFile(file, []byte(j.lease().Deed().Text()+"\n"), 0o600); err != nil {
		return nil, err
	}
	if j.tally != nil {
		if err := j.tally.Begin(file); err != nil {
			return nil, err
		}
	}
	store, err := cli.StoreFor(j.scratch, name, j.opts.passStore)
	if err != nil {
		return nil, err
	}
	return append(append(cli.InheritedEnv(), store...),
		cli.EnvKey+"="+j.lease().Key(),
		cli.EnvToken+"="+strconv.FormatInt(int64(j.lease().Token()), 10),
		cli.EnvStamp+"="+j.lease().Stamp().String(),
		cli.EnvLease+"=@"+file,
		cli.EnvDeadline+"="+j.lease().Record().Deadline.Format(time.RFC3339Nano),
	), nil
}

// tidy counts the last writes and removes the folder with the lease.
func (j *job) tidy() {
	if j.tally != nil {
		j.tally.End()
	}
	_ = os.RemoveAll(j.scratch)
}

// fileOf returns the stream if it is a file, so that a terminal stays a
// terminal for the command.
func fileOf(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}
