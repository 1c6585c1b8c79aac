package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/croft-dev/croft/internal/supervise"
	"github.com/croft-dev/croft/work"
)

// attempt is one run of the command on an item.
type attempt struct {
	crew    *crew
	job     *work.Job
	dir     string
	root    *os.Root   // of dir, from before the command could touch it
	files   []*os.File // to be closed
	result  *collector
	said    *collector
	reading []chan struct{}
}

// handle runs the command on an item and makes of its end what the ledger is told.
func (w *crew) handle(ctx context.Context, job *work.Job) (work.Result, error) {
	id := job.Item().ID
	defer w.forget(id)
	t := &attempt{crew: w, job: job, result: &collector{most: work.MaxPayload}, said: &collector{most: 4 * work.MaxError, tail: true}}
	defer t.clear()
	child, err := t.start(ctx)
	var start *supervise.StartError
	switch {
	case ctx.Err() != nil && err != nil:
		return work.Result{}, context.Cause(ctx)
	case errors.As(err, &start), errors.Is(err, supervise.ErrUnsupported):
		// No item is to blame, and none shall lose an attempt.
		w.breaks(invalid("command: %v", err))
		return work.Result{}, work.GiveBack(err, 0)
	case err != nil:
		return work.Result{}, work.GiveBack(err, giveBackDelay)
	}
	w.begun(id, child)
	cause := t.watch(ctx, child)
	file, wrong := t.openEffects() // the warden removes the folder at its end
	killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	survived := child.Kill(killing)
	t.drain()
	if cause != nil {
		return work.Result{}, cause
	}
	if survived != nil {
		return work.Result{}, survived
	}
	status, err := child.Wait()
	if err != nil {
		return work.Result{}, err
	}
	var effects []work.Emission
	if wrong == nil {
		effects, wrong = parseEffects(file) // nothing lives that could still write to it
	}
	return t.ended(status, effects, wrong)
}

// openEffects opens the file that the command has left its effects in. The
// command may have put anything in its place. Opening waits for nobody and
// follows no link out of the folder.
func (t *attempt) openEffects() (*os.File, error) {
	f, err := t.root.OpenFile("effects", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("effects: %w; write them to the file that %s names", err, envEffects)
	}
	t.files = append(t.files, f)
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("effects: what %s names is no regular file any more; write to the file that is there", envEffects)
	}
	return f, nil
}

// start runs the command.
func (t *attempt) start(ctx context.Context) (*supervise.Child, error) {
	env, err := t.environment()
	if err != nil {
		return nil, fmt.Errorf("the item cannot be handed to the command: %w", err)
	}
	stdin, err := os.Open(filepath.Join(t.dir, "payload"))
	if err != nil {
		return nil, err
	}
	t.files = append(t.files, stdin)
	prefix := ""
	if t.crew.opts.worker.Slots > 1 {
		id := string(t.job.Item().ID)
		prefix = id[len(id)-8:] + ": "
	}
	stdout, err := t.pipe(func(r io.Reader) { _, _ = io.Copy(t.result, r) })
	if err != nil {
		return nil, err
	}
	stderr, err := t.pipe(func(r io.Reader) { t.crew.console.copy(io.TeeReader(r, t.said), prefix) })
	if err != nil {
		return nil, err
	}
	child, err := supervise.Start(ctx, t.crew.command, &supervise.Options{
		Env: env, Scratch: t.dir, AllowFor: t.crew.left(t.job.Item().ID), Stdin: stdin, Stdout: stdout, Stderr: stderr, Aside: true,
	})
	_ = stdout.Close() // the command's ends are the command's
	_ = stderr.Close()
	return child, err
}

// pipe is a file for the command to write to, and somebody who reads it.
func (t *attempt) pipe(read func(io.Reader)) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t.files = append(t.files, r, w)
	over := make(chan struct{})
	t.reading = append(t.reading, over)
	go func() {
		defer close(over)
		read(r)
		_, _ = io.Copy(io.Discard, r) // whoever writes on must not hang
	}()
	return w, nil
}

// drain waits until all is read that the command wrote. Nothing of it lives, so that is soon.
func (t *attempt) drain() {
	for _, f := range t.files {
		_ = f.SetReadDeadline(time.Now().Add(killTimeout)) // of a survivor nobody waits for
	}
	for _, over := range t.reading {
		<-over
	}
}

func (t *attempt) clear() {
	for _, f := range t.files {
		_ = f.Close()
	}
	for _, over := range t.reading {
		<-over
	}
	if t.root != nil {
		_ = t.root.Close()
	}
	_ = os.RemoveAll(t.dir)
}

// environment is what the command finds, and the folder with the files that it points to.
func (t *attempt) environment() (env []string, err error) {
	if t.dir, err = scratch(); err != nil {
		return nil, err
	}
	if t.root, err = os.OpenRoot(t.dir); err != nil {
		return nil, err
	}
	it, deed := t.job.Item(), t.job.Deed()
	in := func(name string) string { return filepath.Join(t.dir, name) }
	checkpoint := ""
	files := map[string][]byte{"payload": it.Payload, "lease": []byte(deed.Text() + "\n"), "effects": nil}
	if len(it.Checkpoint) > 0 {
		checkpoint = in("checkpoint")
		files["checkpoint"] = it.Checkpoint
	}
	for name, data := range files {
		if err := os.WriteFile(in(name), data, 0o600); err != nil {
			return nil, err
		}
	}
	store, err := storeFor(t.dir, t.crew.store, t.crew.opts.passStore)
	if err != nil {
		return nil, err
	}
	return append(append(inherited(), store...),
		"CROFT_ITEM="+string(it.ID),
		"CROFT_QUEUE="+it.Queue,
		"CROFT_ATTEMPT="+strconv.Itoa(it.Attempts),
		"CROFT_LIMIT="+strconv.Itoa(it.Limit),
		"CROFT_GENERATION="+strconv.Itoa(it.Generation),
		"CROFT_CHECKPOINT="+checkpoint,
		envEffects+"="+in("effects"),
		envKey+"="+it.Key(),
		envToken+"="+strconv.FormatInt(int64(deed.Token), 10),
		envStamp+"="+t.job.Stamp().String(),
		envLease+"=@"+in("lease"),
	), nil
}

// watch waits for the end of the command, or of the lease: then it is why the attempt does not count. A drain leaves the command time to end in order; otherwise another may
// own the item already.
func (t *attempt) watch(ctx context.Context, child *supervise.Child) error {
	select {
	case <-child.Done():
		return overdue(ctx, child)
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	var lost *work.LostError
	if errors.As(cause, &lost) && lost.Loss == work.Drained {
		_ = child.Terminate()
		timer := time.NewTimer(t.crew.opts.grace)
		defer timer.Stop()
		select {
		case <-child.Done():
		case <-timer.C:
		}
	}
	return cause
}

// overdue is why the time of a command was over that its warden has killed for that: the worker is about to say so, and it is no matter of chance who was first. Nil if the command ended otherwise, or nobody knows.
func overdue(ctx context.Context, child *supervise.Child) error {
	if status, err := child.Wait(); err != nil || !status.Overdue {
		return nil
	}
	timer := time.NewTimer(killTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return context.Cause(ctx)
}

// ended is what the ledger is told of a command that has ended by itself.
func (t *attempt) ended(status supervise.Status, effects []work.Emission, wrong error) (work.Result, error) {
	if status.Overdue {
		return work.Result{}, work.GiveBack(errors.New("its time ran out while croft stood still; the command was killed"), 0)
	}
	if code := status.ExitCode(); code != 0 {
		err := errors.New(strings.TrimSpace(fmt.Sprintf("%v\n%s", status, t.said.lastLines())))
		switch code {
		case exitCommandFinal:
			return work.Result{}, work.Final(err)
		case exitCommandGiveBack:
			return work.Result{}, work.GiveBack(err, giveBackDelay)
		}
		return work.Result{}, err
	}
	if t.result.over {
		return work.Result{}, fmt.Errorf("the result has more than %d bytes; keep it elsewhere and print its address", work.MaxPayload)
	}
	if wrong != nil {
		return work.Result{}, wrong
	}
	return work.Result{Body: t.result.data, Effects: effects}, nil
}

// collector keeps what is written to it, up to a size: its beginning, or its tail.
type collector struct {
	most int
	tail bool
	data []byte
	over bool
}

func (c *collector) Write(p []byte) (int, error) {
	n := len(p)
	if c.tail {
		if c.data = append(c.data, p...); len(c.data) > c.most {
			c.data = append(c.data[:0], c.data[len(c.data)-c.most:]...)
		}
		return n, nil
	}
	if room := c.most - len(c.data); n > room {
		p, c.over = p[:room], true
	}
	c.data = append(c.data, p...)
	return n, nil
}

// lastLines is the end of what a command said, fit for an item's error.
func (c *collector) lastLines() string {
	const most, room = 20, work.MaxError / 2
	all := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(c.data), "?")), "\n")
	text := strings.Join(all[max(0, len(all)-most):], "\n")
	if len(text) > room {
		text = "…" + strings.ToValidUTF8(text[len(text)-room:], "")
	}
	return text
}
