package workcmd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/supervise"
	"github.com/croft-dev/croft/work"
)

// monotonic is a clock that goes on while the machine sleeps.
var monotonic = clock.System()

// queueWorker runs commands on the items of a queue.
//
// work.Run calls handle in a goroutine for every item. It calls Claim and Apply
// of the tracked ledger in other goroutines, and observe for every event. mu
// guards the counters and tracked.held.
//
// A command may run until a time that three calls set. claimed notes the first
// time, begun adds the process, and confirmed extends the time after every
// heartbeat.
type queueWorker struct {
	app     *app
	store   string
	queue   string
	command []string
	opts    workRunOptions
	end     context.CancelFunc // ends the run: claims no more items
	console *console
	tracked *trackedLedger

	mu sync.Mutex
	// broken is the error if no command can be run, or no item be had, at all.
	broken                                         error
	empty                                          bool
	started, done, failed, released, lost, refused int
	// complaint is the last printed problem of the ledger.
	complaint string
}

// heldItem is an item of which this worker has the lease.
type heldItem struct {
	until clock.Instant
	child *supervise.Child
}

func newQueueWorker(
	a *app, store, queue string, command []string, o workRunOptions, end context.CancelFunc,
) *queueWorker {
	return &queueWorker{
		app: a, store: store, queue: queue, command: command, opts: o, end: end,
		console: newConsole(a, o),
	}
}

// hasBegun reports whether an item was begun.
func (w *queueWorker) hasBegun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tracked.held) > 0 || w.started > 0
}

// endEmpty notes that nothing was ready, and ends the run.
func (w *queueWorker) endEmpty() {
	w.mu.Lock()
	w.empty = true
	w.mu.Unlock()
	w.end()
}

// mayRunUntil is until when a command may run after a confirmed request that
// was sent at this time. It ends a tenth of the TTL before the ledger's
// deadline, like the worker's own.
func (w *queueWorker) mayRunUntil(sent clock.Instant) clock.Instant {
	ttl := w.opts.worker.TTL
	return sent.Add(ttl - ttl/10)
}

func (w *queueWorker) claimed(items []work.Item, sent clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range items {
		w.tracked.held[it.ID] = &heldItem{until: w.mayRunUntil(sent)}
	}
}

// confirmed extends the time of an item's command after a heartbeat. If this
// process is stopped or starved, the warden kills the command at that time.
func (w *queueWorker) confirmed(id work.ID, sent clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.tracked.held[id]
	if h == nil {
		return
	}
	if h.until = max(h.until, w.mayRunUntil(sent)); h.child != nil {
		if left := h.until.Sub(monotonic.Now()); left > 0 {
			_ = h.child.AllowFor(left)
		}
	}
}

// left is how much longer the command of an item may run.
func (w *queueWorker) left(id work.ID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.tracked.held[id]
	if h == nil {
		return time.Millisecond
	}
	return max(h.until.Sub(monotonic.Now()), time.Millisecond)
}

// begun notes the process of an item's command.
func (w *queueWorker) begun(id work.ID, child *supervise.Child) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.tracked.held[id]; h != nil {
		h.child = child
		// A heartbeat may have been confirmed since the start.
		if left := h.until.Sub(monotonic.Now()); left > 0 {
			_ = child.AllowFor(left)
		}
	}
}

// forget removes an item whose command is over.
func (w *queueWorker) forget(id work.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tracked.held, id)
}

// endBroken ends the run with an error, because it cannot get anywhere.
func (w *queueWorker) endBroken(err error) {
	w.mu.Lock()
	if w.broken == nil {
		w.broken = err
	}
	w.mu.Unlock()
	w.end()
}

// workEventView is an event of a worker in JSON. The names are those of
// work.Event.
type workEventView struct {
	Event    work.EventKind `json:"event"`
	Queue    string         `json:"queue,omitempty"`
	Item     work.ID        `json:"item,omitempty"`
	Token    int64          `json:"token,omitempty"`
	Attempt  int            `json:"attempt,omitempty"`
	State    work.State     `json:"state,omitempty"`
	Loss     work.Loss      `json:"loss,omitempty"`
	Took     string         `json:"took,omitempty"`
	Repeated bool           `json:"repeated,omitempty"`
	Error    string         `json:"error,omitempty"`
}

// observe counts and prints events.
func (w *queueWorker) observe(e work.Event) {
	problem := ""
	if e.Err != nil {
		problem = w.app.Redact(e.Err.Error())
	}
	said, over := w.count(e, problem)
	if over && w.opts.once {
		w.end()
	}
	if w.app.JSON && e.Kind != work.EventClaimed && e.Kind != work.EventBeat && e.Kind != work.EventPaused {
		v := workEventView{
			Event: e.Kind, Queue: e.Queue, Item: e.Item, Token: int64(e.Token), Attempt: e.Attempt,
			State: e.State, Loss: e.Loss, Repeated: e.Repeated, Error: problem,
		}
		if e.Took > 0 {
			v.Took = e.Took.Round(time.Microsecond).String()
		}
		w.console.print(v)
		return
	}
	if said != "" && !w.app.JSON {
		w.console.say("croft: " + said)
	}
}

// count counts an event. It returns a message for people, and whether the event
// ends an attempt.
func (w *queueWorker) count(e work.Event, problem string) (said string, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reason := cli.Line(lastLine(problem))
	switch e.Kind {
	case work.EventStarted:
		w.started++
	case work.EventUnfenced:
		w.started++
		delete(w.tracked.held, e.Item) // its handler does not run
		return fmt.Sprintf("%s: not begun: %s", e.Item, cli.Line(problem)), false
	case work.EventClaimed, work.EventBeat:
		w.complaint = "" // the ledger answers
	case work.EventCompleted:
		w.done++
		if w.console.quiet() {
			return "", true
		}
		return fmt.Sprintf("%s: done in %s", e.Item, cli.Short(e.Took)), true
	case work.EventFailed:
		w.failed++
		return fmt.Sprintf("%s: attempt %d failed, %s: %s", e.Item, e.Attempt, e.State, reason), true
	case work.EventReleased:
		w.released++
		return fmt.Sprintf("%s: given back", e.Item), true
	case work.EventLost:
		if e.Loss == work.Drained {
			return "", false // the release follows, and is printed
		}
		w.lost++
		return fmt.Sprintf("%s: lost: %s", e.Item, strings.TrimSpace(string(e.Loss)+" "+reason)),
			e.Loss == work.Superseded
	case work.EventRefused:
		w.refused++
		return fmt.Sprintf("%s: refused: %s", e.Item, cli.Line(problem)), true
	case work.EventAbandoned:
		return fmt.Sprintf("%s: its command could not be stopped in time", e.Item), false
	case work.EventClaimFailed, work.EventBeatFailed, work.EventUnknown:
		if problem == w.complaint || w.broken != nil {
			return "", false
		}
		w.complaint = problem
		return "the ledger does not answer, going on to ask: " + cli.Line(problem), false
	}
	return "", false
}

// lastLine is the last line of a command's output.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		return s[i+1:]
	}
	return s
}
