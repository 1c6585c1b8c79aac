package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/supervise"
	"github.com/croft-dev/croft/work"
)

// monotonic is a clock that runs while the machine sleeps.
var monotonic = clock.System()

// crew runs commands on the items of a queue.
type crew struct {
	app     *app
	store   string
	queue   string
	command []string
	opts    workRunOptions
	end     context.CancelFunc // no more items
	console *console
	minder  *minder

	mu                                             sync.Mutex
	broken                                         error // no command can be run at all
	empty                                          bool
	started, done, failed, released, lost, refused int
	complaint                                      string
}

// held is an item of which this worker has the lease.
type held struct {
	until clock.Instant
	child *supervise.Child
}

func newCrew(a *app, store, queue string, command []string, o workRunOptions, end context.CancelFunc) *crew {
	return &crew{app: a, store: store, queue: queue, command: command, opts: o, end: end, console: newConsole(a, o)}
}

// had reports whether an item was begun.
func (w *crew) had() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.minder.held) > 0 || w.started > 0
}

// nothing notes that nothing was ready, and ends the run.
func (w *crew) nothing() {
	w.mu.Lock()
	w.empty = true
	w.mu.Unlock()
	w.end()
}

// mayUntil is until when a command may run whose last confirmed request was sent then: as the worker has it, a tenth before the ledger's deadline.
func (w *crew) mayUntil(sent clock.Instant) clock.Instant {
	ttl := w.opts.worker.TTL
	return sent.Add(ttl - ttl/10)
}

func (w *crew) claimed(items []work.Item, sent clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range items {
		w.minder.held[it.ID] = &held{until: w.mayUntil(sent)}
	}
}

// confirmed lets the command of an item run on: should this process be stopped or starved, its warden kills it in time.
func (w *crew) confirmed(id work.ID, sent clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.minder.held[id]
	if h == nil {
		return
	}
	if h.until = max(h.until, w.mayUntil(sent)); h.child != nil {
		if left := h.until.Sub(monotonic.Now()); left > 0 {
			_ = h.child.AllowFor(left)
		}
	}
}

// left is how long the command of an item may run from now on.
func (w *crew) left(id work.ID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.minder.held[id]
	if h == nil {
		return time.Millisecond
	}
	return max(h.until.Sub(monotonic.Now()), time.Millisecond)
}

// begun notes the command of an item.
func (w *crew) begun(id work.ID, child *supervise.Child) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.minder.held[id]; h != nil {
		h.child = child
		if left := h.until.Sub(monotonic.Now()); left > 0 { // a heartbeat may have been confirmed since it was started
			_ = child.AllowFor(left)
		}
	}
}

// forget lets go of an item whose command is over.
func (w *crew) forget(id work.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.minder.held, id)
}

// breaks ends the run: no command can be run.
func (w *crew) breaks(err error) {
	w.mu.Lock()
	if w.broken == nil {
		w.broken = err
	}
	w.mu.Unlock()
	w.end()
}

// workEventView is, in JSON, what happens in a worker. The names are those of work.Event.
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

// observe counts and tells what happens.
func (w *crew) observe(e work.Event) {
	problem := ""
	if e.Err != nil {
		problem = w.app.redact(e.Err.Error())
	}
	said, over := w.count(e, problem)
	if over && w.opts.once {
		w.end()
	}
	if w.app.json && e.Kind != work.EventClaimed && e.Kind != work.EventBeat {
		v := workEventView{Event: e.Kind, Queue: e.Queue, Item: e.Item, Token: int64(e.Token), Attempt: e.Attempt, State: e.State, Loss: e.Loss, Repeated: e.Repeated, Error: problem}
		if e.Took > 0 {
			v.Took = e.Took.Round(time.Microsecond).String()
		}
		w.console.print(v)
		return
	}
	if said != "" && !w.app.json {
		w.console.say("croft: " + said)
	}
}

// count takes an event in. It returns what people should read of it, and whether it is the end of an attempt.
func (w *crew) count(e work.Event, problem string) (said string, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reason := line(lastLine(problem))
	switch e.Kind {
	case work.EventStarted:
		w.started++
	case work.EventClaimed, work.EventBeat:
		w.complaint = "" // the ledger answers
	case work.EventCompleted:
		w.done++
		if w.console.quiet() {
			return "", true
		}
		return fmt.Sprintf("%s: done in %s", e.Item, short(e.Took)), true
	case work.EventFailed:
		w.failed++
		return fmt.Sprintf("%s: attempt %d failed, %s: %s", e.Item, e.Attempt, e.State, reason), true
	case work.EventReleased:
		w.released++
		return fmt.Sprintf("%s: given back", e.Item), true
	case work.EventLost:
		if e.Loss == work.Drained {
			return "", false // it is given back, which is said
		}
		w.lost++
		return fmt.Sprintf("%s: lost: %s", e.Item, strings.TrimSpace(string(e.Loss)+" "+reason)), e.Loss == work.Superseded
	case work.EventRefused:
		w.refused++
		return fmt.Sprintf("%s: refused: %s", e.Item, line(problem)), true
	case work.EventAbandoned:
		return fmt.Sprintf("%s: its command could not be stopped in time", e.Item), false
	case work.EventClaimFailed, work.EventBeatFailed, work.EventUnknown:
		if problem == w.complaint {
			return "", false
		}
		w.complaint = problem
		return "the ledger does not answer, going on to ask: " + line(problem), false
	}
	return "", false
}

// lastLine is the end of what a command said.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		return s[i+1:]
	}
	return s
}
