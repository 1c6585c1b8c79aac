package workcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/supervise"
	"github.com/croft-dev/croft/work"
)

// attempt is one run of the command on an item. Two goroutines read what the
// command writes, one into result and one into said. drain waits for both.
type attempt struct {
	worker *queueWorker
	job    *work.Job
	dir    string
	root   *os.Root   // of dir, opened before the command could change it
	files  []*os.File // closed at the end
	result *collector
	said   *collector
	// reading has a channel for every reader. The reader closes it at its end.
	reading []chan struct{}
}

// handle runs the command on an item and returns the outcome for the ledger.
func (w *queueWorker) handle(ctx context.Context, job *work.Job) (work.Result, error) {
	id := job.Item().ID
	defer w.forget(id)
	t := &attempt{
		worker: w, job: job, result: &collector{most: work.MaxPayload},
		said: &collector{most: 4 * work.MaxError, tail: true},
	}
	defer t.clear()
	child, err := t.start(ctx)
	var start *supervise.StartError
	switch {
	case ctx.Err() != nil && err != nil:
		return work.Result{}, context.Cause(ctx)
	case errors.As(err, &start), errors.Is(err, supervise.ErrUnsupported):
		// The fault is not the item's, so it must not lose an attempt.
		w.endBroken(cli.Invalid("command: %v", err))
		return work.Result{}, work.ReleaseFor(err, 0)
	case err != nil:
		return work.Result{}, work.ReleaseFor(err, giveBackDelay)
	}
	w.begun(id, child)
	cause := t.watch(ctx, child)
	// Open them now, because the warden removes the folder at its end.
	file, wrong := t.open("effects", cli.EnvEffects)
	var done *os.File
	if w.opts.requireDone {
		done, _ = t.open("done", cli.EnvDone) // without it, nothing is confirmed
	}
	killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.KillTimeout)
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
	// Nothing of the command lives, so nothing writes to the files any more.
	if wrong == nil {
		effects, wrong = parseEffects(file)
	}
	return t.ended(status, effects, wrong, done)
}

// open opens a file that a variable names to the command. The command may have
// put anything in its place. So opening does not block, and follows no link out
// of the folder.
func (t *attempt) open(name, variable string) (*os.File, error) {
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; write to the file that %s names", name, err, variable)
	}
	t.files = append(t.files, f)
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: what %s names is no regular file any more; write to the file that is there", name,
			variable)
	}
	return f, nil
}

// start starts the command.
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
	if t.worker.opts.worker.Slots > 1 {
		id := string(t.job.Item().ID)
		prefix = id[len(id)-8:] + ": "
	}
	stdout, err := t.pipe(func(r io.Reader) { _, _ = io.Copy(t.result, r) })
	if err != nil {
		return nil, err
	}
	stderr, err := t.pipe(func(r io.Reader) { t.worker.console.copy(io.TeeReader(r, t.said), prefix) })
	if err != nil {
		return nil, err
	}
	child, err := supervise.Start(ctx, t.worker.command, &supervise.Options{
		Env: env, Scratch: t.dir, AllowFor: t.worker.left(t.job.Item().ID), Stdin: stdin, Stdout: stdout,
		Stderr: stderr,
		Aside:  true,
	})
	// The command has these ends now.
	_ = stdout.Close()
	_ = stderr.Close()
	return child, err
}

// pipe returns a file for the command to write to. A goroutine reads the other
// end.
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
		_, _ = io.Copy(io.Discard, r) // so that a command that writes on does not hang
	}()
	return w, nil
}

// drain waits until everything is read that the command wrote. That is soon,
// because nothing of the command lives.
func (t *attempt) drain() {
	for _, f := range t.files {
		// If a process survived, do not wait for it.
		_ = f.SetReadDeadline(time.Now().Add(cli.KillTimeout))
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

// environment makes the folder with the command's files and returns the
// command's environment.
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
	var done []string
	if t.worker.opts.requireDone {
		files["done"] = nil
		done = []string{cli.EnvDone + "=" + in("done")}
	}
	for name, data := range files {
		if err := os.WriteFile(in(name), data, 0o600); err != nil {
			return nil, err
		}
	}
	store, err := cli.StoreFor(t.dir, t.worker.store, t.worker.opts.passStore)
	if err != nil {
		return nil, err
	}
	return append(slices.Concat(cli.InheritedEnv(cli.EnvDone), store, done),
		"CROFT_ITEM="+string(it.ID),
		"CROFT_QUEUE="+it.Queue,
		"CROFT_ATTEMPT="+strconv.Itoa(it.Attempts),
		"CROFT_LIMIT="+strconv.Itoa(it.Limit),
		"CROFT_GENERATION="+strconv.Itoa(it.Generation),
		"CROFT_CHECKPOINT="+checkpoint,
		cli.EnvEffects+"="+in("effects"),
		cli.EnvConfirm+"=stderr",
		cli.EnvKey+"="+it.Key(),
		cli.EnvToken+"="+t.token(),
		cli.EnvStamp+"="+t.job.Stamp().String(),
		cli.EnvLease+"=@"+in("lease"),
	), nil
}

// watch waits for the end of the command or of the lease. If the lease ends, it
// returns the reason, and the attempt does not count. During a drain the
// command gets TERM and its grace. Otherwise another worker may own the item
// already.
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
		timer := time.NewTimer(t.worker.opts.grace)
		defer timer.Stop()
		select {
		case <-child.Done():
		case <-timer.C:
		}
	}
	return cause
}

// overdue handles a command that its warden killed because its time was over.
// The worker finds the same loss a moment later. overdue waits for it and
// returns its reason, so the outcome does not depend on which was first. It
// returns nil if the command ended otherwise.
func overdue(ctx context.Context, child *supervise.Child) error {
	if status, err := child.Wait(); err != nil || !status.Overdue {
		return nil
	}
	timer := time.NewTimer(cli.KillTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return context.Cause(ctx)
}

// ended returns the outcome of a command that has ended by itself. The file
// done is nil if there is none.
func (t *attempt) ended(
	status supervise.Status, effects []work.Emission, wrong error, done *os.File,
) (work.Result, error) {
	if status.Overdue {
		return work.Result{},
			work.ReleaseFor(errors.New("its time ran out while croft stood still; the command was killed"), 0)
	}
	if code := status.ExitCode(); code != 0 {
		err := errors.New(strings.TrimSpace(fmt.Sprintf("%v\n%s", status, t.said.lastLines())))
		switch code {
		case exitCommandFinal:
			return work.Result{}, work.Final(err)
		case exitCommandGiveBack:
			return work.Result{}, work.ReleaseFor(err, giveBackDelay)
		}
		return work.Result{}, err
	}
	if t.worker.opts.requireDone && !t.confirmed(done) {
		return work.Result{}, errors.New(strings.TrimSpace(t.said.lastLines() + "\n" + unconfirmed))
	}
	if t.result.over {
		return work.Result{},
			fmt.Errorf("the result has more than %d bytes; keep it elsewhere and print its address", work.MaxPayload)
	}
	if wrong != nil {
		return work.Result{}, wrong
	}
	return work.Result{Body: t.result.data, Effects: effects}, nil
}

// unconfirmed is the last line of the reason, because consoles show that line.
const unconfirmed = "exit status 0, but the command did not write its token to the file that " + cli.EnvDone +
	" names: it ended before its work was done"

// confirmed reports whether the file has the attempt's token. It reads little,
// because the command may have written anything.
func (t *attempt) confirmed(done *os.File) bool {
	if done == nil {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(done, 64))
	return err == nil && strings.TrimSpace(string(text)) == t.token()
}

// token is the attempt's token as the command finds it.
func (t *attempt) token() string { return strconv.FormatInt(int64(t.job.Deed().Token), 10) }

// collector keeps the beginning, or the tail, of its input.
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

// lastLines is the end of a command's output, short enough for an item's error.
func (c *collector) lastLines() string {
	const most, room = 20, work.MaxError / 2
	all := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(c.data), "?")), "\n")
	text := strings.Join(all[max(0, len(all)-most):], "\n")
	if len(text) > room {
		text = "…" + strings.ToValidUTF8(text[len(text)-room:], "")
	}
	return text
}
