package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// A waiter is registered in the database for registered, and again every refresh for as long as it waits.
const (
	registered = time.Minute
	refresh    = 20 * time.Second
)

// listener wakes the watchers of one client: all share one connection that listens, and a key that many watch is registered once.
type listener struct {
	store *Store
	log   *slog.Logger

	mu     sync.Mutex
	keys   map[string]*watched
	line   *line // the connection that listens; nil while there is none
	cannot error // why the server cannot notify, once that is known
	closed bool
	told   sync.Once
}

// watched is a key with watchers.
type watched struct {
	watchers map[chan struct{}]struct{}
	until    time.Time // it is registered until then
}

func newListener(s *Store, log *slog.Logger) *listener {
	return &listener{store: s, log: log, keys: map[string]*watched{}}
}

// Watch returns a channel that receives soon after the key may have changed hands: granted, released, or moved by an operator. Renewals wake nobody. Where the
// server cannot notify, because a transaction pooler is in between, the error matches errors.ErrUnsupported.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	l := s.listener
	if err := l.listening(ctx); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		return nil, store.Unknown(explain(ctx, err))
	}
	c, due := l.add(key)
	if due {
		if err := l.register(ctx, key); err != nil {
			l.remove(key, c)
			return nil, store.Unknown(explain(ctx, err))
		}
	}
	context.AfterFunc(ctx, func() { l.remove(key, c) })
	return c, nil
}

// add enters a watcher, and says whether its key must be registered.
func (l *listener) add(key string) (c chan struct{}, due bool) {
	c = make(chan struct{}, 1) // one pending wake-up stands for any number of changes
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.keys[key]
	if w == nil {
		w = &watched{watchers: map[chan struct{}]struct{}{}}
		l.keys[key] = w
	}
	w.watchers[c] = struct{}{}
	return c, time.Until(w.until) < refresh/2
}

// register makes changes of a key notify from now on. It returns after every change that could still have missed it is over.
func (l *listener) register(ctx context.Context, key string) error {
	s := l.store
	until := time.Now().Add(registered)
	err := s.run(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, s.sql.wait, s.waitMillis(), []string{key}, int32(registered.Milliseconds()))
		return err
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.keys[key]; w != nil {
		w.until = until
	}
	return nil
}

// remove ends a watch. It may be called twice.
func (l *listener) remove(key string, c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.keys[key]
	if w == nil {
		return
	}
	if _, there := w.watchers[c]; !there {
		return
	}
	delete(w.watchers, c)
	close(c) // under the mutex: nobody is waking it
	if len(w.watchers) == 0 {
		delete(l.keys, key)
	}
}

// wake tells the watchers of a key.
func (l *listener) wake(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.keys[key]; w != nil {
		w.wake()
	}
}

func (w *watched) wake() {
	for c := range w.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// broke ends all watches: their owners go on by polling, and may watch again.
func (l *listener) broke(which *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != which {
		return
	}
	l.line = nil
	for key, w := range l.keys {
		for c := range w.watchers {
			close(c)
		}
		delete(l.keys, key)
	}
}

// keepRegistered registers the watched keys again before the database forgets them, until the connection ends.
func (l *listener) keepRegistered(ctx context.Context) {
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	last := time.Now().Round(0) // by the wall clock: it goes on while a machine sleeps
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		keys := make([]string, 0, len(l.keys))
		for key := range l.keys {
			keys = append(keys, key)
		}
		l.mu.Unlock()
		if len(keys) == 0 {
			continue
		}
		until := time.Now().Add(registered)
		if _, err := l.store.pool.Exec(ctx, l.store.sql.refresh, keys, int32(registered.Milliseconds())); err != nil {
			continue // the next tick comes before they are forgotten
		}
		now := time.Now().Round(0)
		late := now.Sub(last) > registered-refresh/2
		last = now
		l.mu.Lock()
		for _, key := range keys {
			if w := l.keys[key]; w != nil {
				w.until = until
				if late { // they may have been forgotten for a while
					w.wake()
				}
			}
		}
		l.mu.Unlock()
	}
}

// unsupported remembers that the server cannot notify, and says so once.
func (l *listener) unsupported(why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cannot = fmt.Errorf("postgres: %s: waiters ask again instead: %w", why, errors.ErrUnsupported)
	l.told.Do(func() {
		l.log.Warn("croft: PostgreSQL cannot wake waiters over this connection; they poll instead", "why", why,
			"advice", "connect to the server itself, or to a pooler in session mode, to have leases handed over at once")
	})
	return l.cannot
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	line := l.line
	l.mu.Unlock()
	if line != nil {
		line.cancel()
		<-line.ended
	}
}
