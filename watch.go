package croft

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
)

// watch is a store's stream of hints about one key. It belongs to a line and lasts as long as somebody waits there.
type watch struct {
	cancel context.CancelFunc
	sees   bool // they also tell of what happened since the key was refused

	// Under the mutex of the lines.
	open  bool // hints come
	heard bool // one has come, from the store or from within
}

// startWatch asks the store for hints about the line's key, if it gives any and they do not come already. Opening the stream may take its time, so it
// happens beside the head, which goes on polling.
func (q *lines) startWatch(p *place) {
	watcher, ok := q.c.st.(store.Watcher)
	if !ok {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := p.line
	if ln.watch != nil {
		ln.wake() // it has heard of hints from the head before
		return
	}
	ctx, cancel := context.WithCancel(q.c.life)
	lookout, is := watcher.(store.Lookout)
	w := &watch{cancel: cancel, sees: is && lookout.Sees()}
	ln.watch = w
	q.c.fork(func() {
		defer cancel()
		hints, err := watcher.Watch(ctx, ln.key)
		if err == nil {
			q.opened(ln, w)
			for range hints {
				q.hear(ln, w)
			}
			err = errHintsEnded
		}
		never := errors.Is(err, errors.ErrUnsupported)
		q.ended(ln, w, never)
		if !never && ctx.Err() == nil {
			q.c.emit(Event{Kind: EventUnwatched, Key: ln.key, Err: err})
		}
	})
}

// hear passes a hint on.
func (q *lines) hear(ln *line, w *watch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.heard = true
	ln.wake()
}

// opened notes that hints come, and wakes the head to take notice.
func (q *lines) opened(ln *line, w *watch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.open = true
	ln.wake()
}

// ended notes that they do not come, or not any more. The next head tries anew, unless they never will.
func (q *lines) ended(ln *line, w *watch, never bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.open = false
	if ln.watch == w && !never {
		ln.watch = nil
	}
	ln.wake()
}

// errHintsEnded is told of a watch that broke.
var errHintsEnded = errors.New("the store's hints have ended")

// hinted is what a wake-up of the head means to one who knew whether hints come: that time has passed, if there was no hint.
func (q *lines) hinted(p *place, watched *bool) keep.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !p.line.hint {
		return keep.Tick{}
	}
	p.line.hint = false
	open := p.line.watch != nil && p.line.watch.open
	switch was := *watched; {
	case open && !was:
		*watched = true
		w := p.line.watch
		return keep.Watched{Since: w.sees && !w.heard} // a hint may have come with the news that they come
	case !open && was:
		*watched = false
		return keep.Unwatched{}
	}
	return keep.Woken{}
}
