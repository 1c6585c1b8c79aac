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
	"github.com/croft-dev/croft/internal/supervise"
)

const (
	// resumeTimeout bounds asking whether a lease that lapsed in our sleep can be taken up again.
	resumeTimeout = 5 * time.Second
	// killTimeout bounds waiting for killed processes to be gone.
	killTimeout = 10 * time.Second
)

// job is a command under a lease.
type job struct {
	app    *app
	opts   runOptions
	status *runStatus
	child  *supervise.Child

	tally   *tally // of writes inside; nil if nobody counts
	scratch string // the folder with the lease that the command finds; "" before there is one

	mu   sync.Mutex // lease is also asked for when the terminal continues the command
	held *croft.Lease
}

// lease is the one the command runs under: another, with the same token, after a resume.
func (j *job) lease() *croft.Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held
}

// start starts the command, unless ctx ends before: somebody who wants to end it all must not leave the key taken.
func (j *job) start(ctx context.Context, command []string) error {
	env, err := j.environment()
	if err != nil {
		return fmt.Errorf("%w: %w", errHandOver, err)
	}
	j.status.token, j.status.verdict = j.lease().Token(), verdictRunning
	j.status.write(j.app.stderr)

	j.child, err = supervise.Start(ctx, command, &supervise.Options{
		Env: env, Scratch: j.scratch, AllowFor: max(j.lease().Remaining(), time.Millisecond), Stdin: fileOf(j.app.stdin), Stdout: fileOf(j.app.stdout.w), Stderr: fileOf(j.app.stderr),
		MayContinue: func() bool { return j.lease().Remaining() > 0 },
	})
	return err
}

// errHandOver says that there is no place for what the command needs to know of the lease.
var errHandOver = errors.New("the lease cannot be handed to the command")

// notStarted settles the lease of a command that did not start.
func (j *job) notStarted(ctx context.Context, err error) error {
	defer j.tidy()
	_ = j.lease().Fail(ctx)
	var start *supervise.StartError
	switch {
	case errors.As(err, &start):
		return j.end(verdictNotStarted, start.ExitCode(), err.Error())
	case errors.Is(err, context.Canceled):
		return j.end(verdictNotStarted, exitInterrupted, "interrupted before the command was started")
	case errors.Is(err, errHandOver):
		return j.end(verdictNotStarted, exitUnknown, err.Error())
	}
	return j.end(verdictNotStarted, exitFailed, err.Error())
}

// run sees both the command and the lease to their ends.
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

// watch waits for the end of the command (true) or of the lease (false). Meanwhile it tells the warden how long the command may live should this
// process be stopped or starved.
func (j *job) watch() (done bool) {
	tick := time.NewTicker(min(max(j.opts.lease.TTL/20, 10*time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		if left := j.lease().Remaining(); left > 0 { // otherwise what was said last stands
			_ = j.child.AllowFor(left)
		}
		select {
		case <-j.child.Done():
			return true
		case <-j.lease().Done():
			return false
		case <-tick.C:
		}
	}
}

// ended settles the lease after the command has exited by itself.
func (j *job) ended(ctx context.Context) error {
	status, err := j.child.Wait()
	if err == nil {
		j.status.command(status)
	}
	if err := j.kill(ctx); err != nil {
		// Somebody still works under the lease: let it lapse rather than hand it on.
		return j.end(verdictFailed, exitFailed, err.Error()+"; the lease is not released and lapses by itself")
	}
	if err != nil { // how it ended is not known
		_ = j.lease().Fail(ctx)
		return j.end(verdictFailed, exitFailed, err.Error())
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
		return j.end(verdictLost, exitNotOwned, fmt.Sprintf("%v; the command ended (%v) after the lease had", err, status))
	case err != nil:
		fmt.Fprintf(j.app.stderr, "croft: the lease could not be released and lapses by itself: %s\n", lines(j.app.redact(err.Error())))
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

// overdue settles the lease after the warden has killed the command in time, while this process was stopped or starved.
func (j *job) overdue(ctx context.Context) error {
	j.status.loss = croft.Expired
	_ = j.lease().Fail(ctx) // it may have been resumed since; nothing of the command lives
	return j.end(verdictLost, exitNotOwned, fmt.Sprintf("lease lost: %q (token %d): its time ran out while croft stood still; the command was killed",
		j.lease().Key(), j.lease().Token()))
}

// resume tries to take up a lease that lapsed while this machine slept or this process was stopped. The command stands still meanwhile.
func (j *job) resume(ctx context.Context) bool {
	if j.lease().Remaining() > 0 || !byTime(j.lease().Err()) {
		return false // there is time to end it in order, or nothing to ask
	}
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	if err := j.child.Freeze(ctx); err != nil {
		return false
	}
	if over(j.child) {
		return false // there is nothing to go on with
	}
	lease, err := j.lease().Resume(ctx)
	if err != nil {
		return false
	}
	fmt.Fprintf(j.app.stderr, "croft: %q lapsed while this machine or process stood still; nobody else was granted it, going on\n", lease.Key())
	j.mu.Lock()
	j.held = lease
	j.mu.Unlock()
	_ = j.child.AllowFor(lease.Remaining())
	j.child.Thaw()
	return true
}

// byTime reports whether a lease ended because time passed, not because somebody said so.
func byTime(err error) bool {
	var lost *croft.LostError
	return errors.As(err, &lost) && (lost.Loss == croft.Expired || lost.Loss == croft.Unreachable)
}

// lost stops the command of a lease that has ended: at once if another may own the key already, in order if there is still time.
func (j *job) lost(ctx context.Context, err error) error {
	var lost *croft.LostError
	if errors.As(err, &lost) {
		j.status.loss = lost.Loss
	}
	orderly := j.lease().Remaining() > 0 && lost != nil && lost.Loss != croft.Superseded && lost.Loss != croft.TakenOver && lost.Loss != croft.Released
	how := "killed"
	switch {
	case over(j.child):
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
		if orderly { // nothing of it lives, so others need not wait for the deadline
			_ = j.lease().Fail(ctx)
		}
	}
	return j.end(verdictLost, exitNotOwned, message)
}

// over reports whether the command itself has ended.
func over(child *supervise.Child) bool {
	select {
	case <-child.Done():
		return true
	default:
		return false
	}
}

// kill ends whatever is left of the command.
func (j *job) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	return j.child.Kill(ctx)
}

// end says how it went, in the last line on stderr and in the status file.
func (j *job) end(v verdict, code int, message string) error {
	message = j.app.redact(message)
	j.status.verdict, j.status.exit, j.status.message = v, code, message
	j.status.write(j.app.stderr)
	switch {
	case message == "":
	case j.app.json && v != verdictFailed:
		name := "unknown"
		switch {
		case v == verdictLost:
			name = "not_owned"
		case code == supervise.CodeNotFound || code == supervise.CodeNotExecutable:
			name = "invalid"
		}
		f := facts{{"code", name}, {"message", message}, {"key", j.lease().Key()}, {"token", j.lease().Token()}}
		if v == verdictLost {
			f.add("why", j.status.loss)
		}
		j.app.print(map[string]any{"error": f})
	default:
		fmt.Fprintf(j.app.stderr, "croft: %s\n", lines(message))
	}
	return exitError(code)
}

// environment is what the command finds. It makes the folder with the lease that it points to.
func (j *job) environment() (env []string, err error) {
	name, _, err := j.app.storeName()
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
		if err := j.tally.begin(file); err != nil {
			return nil, err
		}
	}
	store, err := storeFor(j.scratch, name, j.opts.passStore)
	if err != nil {
		return nil, err
	}
	return append(append(inherited(), store...),
		envKey+"="+j.lease().Key(),
		envToken+"="+strconv.FormatInt(int64(j.lease().Token()), 10),
		envStamp+"="+j.lease().Stamp().String(),
		envLease+"=@"+file,
		envDeadline+"="+j.lease().Record().Deadline.Format(time.RFC3339Nano),
	), nil
}

// tidy removes what the command found, when the last of it has been counted.
func (j *job) tidy() {
	if j.tally != nil {
		j.tally.end()
	}
	_ = os.RemoveAll(j.scratch)
}

// fileOf is the stream itself when it is a file, so that a terminal stays a terminal.
func fileOf(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}
