package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

const (
	// parallel is how many tests of a binary run at once, as in `make test`.
	parallel = 8
	// overtime is how long a binary may take to end after its own timeout.
	overtime = 2 * time.Minute
	// tmpEnv tells tests where to put temporary files.
	tmpEnv = "TMPDIR"
)

// grace is how long the helpers of a test may take to clean up after it.
var grace = 10 * time.Second

// A run is one run of a test binary, and how it ended.
type run struct {
	pkg     *pkg
	number  int
	seed    int64
	cpu     int
	elapsed time.Duration
	stops   int
	cut     bool // the hunt ended before the run did
	left    bool // processes were left behind and had to be killed
	end     string
	outcome *outcome
	file    string // path of the output, if the run failed
	err     error  // the hunter could not run it
}

// args returns the arguments of the test binary.
func (r *run) args(o *options) []string {
	args := []string{
		"-test.v=test2json", "-test.paniconexit0", // as go test -json does
		"-test.timeout=" + o.timeout.String(),
		"-test.shuffle=" + strconv.FormatInt(r.seed, 10),
		"-test.cpu=" + strconv.Itoa(r.cpu),
		"-test.parallel=" + strconv.Itoa(parallel),
	}
	if o.each > 1 {
		args = append(args, "-test.count="+strconv.Itoa(o.each))
	}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	return args
}

// execute runs the binary in the folder of its package, and reads its output.
// The first stop comes within the duration first.
func (h *hunter) execute(ctx context.Context, r *run, first time.Duration) {
	folder := filepath.Join(h.tmp, strconv.Itoa(r.number))
	output := folder + ".out"
	defer func() {
		unmountBelow(folder)
		r.err = errors.Join(r.err, removeAll(folder), os.Remove(output))
	}()
	// Servers that do not run as root use this folder, too.
	if r.err = errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o777|os.ModeSticky)); r.err != nil {
		return
	}
	out, err := os.Create(output)
	if err != nil {
		r.err = err
		return
	}
	defer out.Close()
	cmd := exec.Command(r.pkg.binary, r.args(h.options)...)
	cmd.Dir = r.pkg.dir
	cmd.Env = append(cmd.Environ(), "CI=true", tmpEnv+"="+folder)
	cmd.Stdout, cmd.Stderr = out, out
	own(cmd)
	began := time.Now()
	if r.err = cmd.Start(); r.err != nil {
		return
	}
	r.watch(ctx, cmd, h.options, first)
	r.elapsed = time.Since(began)
	r.left = endLeftovers(cmd.Process.Pid, folder, grace)
	if _, r.err = out.Seek(0, 0); r.err == nil {
		r.outcome, r.err = h.read(out, r)
	}
}

// watch stops the binary now and then until it ends, or kills it when the hunt
// is over.
func (r *run) watch(ctx context.Context, cmd *exec.Cmd, o *options, first time.Duration) {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	overdue := time.After(o.timeout + overtime)
	over := ctx.Done()
	turn := time.NewTimer(between(0, first))
	defer turn.Stop()
	if o.stop == 0 || !canStop {
		turn.Stop()
	}
	stopped := false
	for {
		select {
		case err := <-done:
			if err != nil {
				r.end = err.Error()
			}
			return
		case <-over:
			over, r.cut = nil, true
			turn.Stop()
			_ = cmd.Process.Kill()
		case <-overdue:
			turn.Stop()
			_ = cmd.Process.Kill()
		case <-turn.C:
			if stopped {
				resume(cmd.Process)
				turn.Reset(between(o.every/5, o.every))
			} else {
				r.stops++
				pause(cmd.Process)
				turn.Reset(between(o.stop/10, o.stop))
			}
			stopped = !stopped
		}
	}
}

// between returns a random duration.
func between(least, most time.Duration) time.Duration {
	return least + rand.N(max(most-least, 1))
}

// removeAll removes a folder, even if a test has removed the permission to.
func removeAll(folder string) error {
	if os.RemoveAll(folder) == nil {
		return nil
	}
	_ = filepath.WalkDir(folder, func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(folder)
}

// String identifies a run.
func (r *run) String() string {
	return fmt.Sprintf("seed %d, cpu %d, %d stops, after %s", r.seed, r.cpu, r.stops, brief(r.elapsed))
}
