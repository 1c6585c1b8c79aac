package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// worker is the director's side of a worker process.
type worker struct {
	owner string
	cmd   *exec.Cmd
	in    io.WriteCloser
	// patience is how long an order may take, besides the time it is told to
	// wait. It only keeps the drill from hanging.
	patience time.Duration

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	renewed []time.Time // as the replies so far tell
	tail    tail        // the end of its standard error, which may say why it died

	gone chan struct{} // closed when the process has ended
}

// start runs a worker process in a process group of its own. So Ctrl-C reaches
// only the director, which then ends its workers.
func start(cmd *exec.Cmd, owner string, patience time.Duration) (*worker, error) {
	w := &worker{owner: owner, cmd: cmd, patience: patience, waiting: map[int]chan reply{}, gone: make(chan struct{})}
	ownGroup(cmd)
	cmd.Stderr = &w.tail
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("a worker process could not be started: %w", err)
	}
	w.in = in
	go w.listen(out)
	return w, nil
}

// listen hands replies to the calls that wait for them, until the process has
// ended.
func (w *worker) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // the call that waits for it times out
		}
		w.mu.Lock()
		answer := w.waiting[r.ID]
		delete(w.waiting, r.ID)
		w.renewed = append(w.renewed, r.Renewed...)
		w.mu.Unlock()
		if answer != nil {
			answer <- r
		}
	}
	_ = w.cmd.Wait()
	close(w.gone)
}

// call gives an order and returns the reply. If the process has died or does
// not answer, the reply is a failure like any other.
func (w *worker) call(ctx context.Context, o order) reply {
	ctx, cancel := context.WithTimeout(ctx, o.Wait+w.patience)
	defer cancel()
	answer := make(chan reply, 1)
	w.mu.Lock()
	w.last++
	o.ID = w.last
	w.waiting[o.ID] = answer
	line, err := json.Marshal(o)
	if err == nil {
		_, err = w.in.Write(append(line, '\n'))
	}
	w.mu.Unlock()
	if err != nil {
		return w.silence(o, fmt.Sprintf("could not be told: %v", err))
	}
	select {
	case r := <-answer:
		return r
	case <-w.gone:
		return w.silence(o, "its process has ended"+w.tail.quote())
	case <-ctx.Done():
		return w.silence(o, fmt.Sprintf("did not answer: %v", context.Cause(ctx)))
	}
}

func (w *worker) silence(o order, why string) reply {
	return reply{Err: &failure{Kind: kindFailed, Message: fmt.Sprintf("%s was to %s and %s", w.owner, o.Do, why)}}
}

// renewals is when the worker's client has renewed its lease, up to the last
// reply.
func (w *worker) renewals() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.renewed)
}

// kill ends the process, even if it is stopped. It returns when the process is
// gone.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.gone
	_ = w.in.Close()
}

// tail keeps the end of the text that is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailLen = 600

// Write keeps the last bytes.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailLen; over > 0 {
		t.text = append([]byte(nil), t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.Join(strings.Fields(string(t.text)), " ")
	if text == "" {
		return ""
	}
	return ": " + text
}
