package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// A client that waits for a key is entered in the database for registered, and again every refresh for as long as it waits.
const (
	registered = time.Minute
	refresh    = 20 * time.Second
)

// lateness is how long after Watch a client enters itself among those who wait for the key. Who asks for the key before, and is refused, is entered with that.
const lateness = 50 * time.Millisecond

// grace is how long those who were not named leave the key to the one who was; up to half as much again, so that they do not all come at once.
const grace = 100 * time.Millisecond

// listener wakes the watchers of one client, and tells it of operators' acts.
// All share one connection that listens, and are one waiter to the database.
type listener struct {
	store    *Store
	log      *slog.Logger
	id       string        // names the client among those who wait
	late     time.Duration // [lateness], which tests can put off
	farewell time.Duration // how long close tries to leave the line; longer only in tests

	mu     sync.Mutex
	keys   map[string]*watched
	left   map[string]time.Time // keys that nobody watches any more, and until when the database still counts this client among those who wait
	acts   turns.Acts
	line   *line // the connection that listens; nil while there is none
	cannot cannot
	waits  bool // it may be among those who wait, for whatever key
	closed bool
	errand sync.WaitGroup  // what goes on in the background
	life   context.Context // of errands
	end    context.CancelFunc
}

// watched is a key with watchers.
type watched struct {
	watchers map[chan struct{}]func() bool // and what ends their waiting for their context
	until    time.Time                     // it is entered in the database until then; zero: it is not
	turns    int                           // how often this client was named for it
	late     *time.Timer                   // enters it
	grace    *time.Timer                   // wakes it if the one who was named does not come
}

func newListener(s *Store, log *slog.Logger) *listener {
	l := &listener{
		store: s, log: log, id: rand.Text()[:13], late: lateness, farewell: time.Second,
		keys: map[string]*watched{}, left: map[string]time.Time{},
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// Watch returns a channel that receives soon after the key may have changed hands: granted, released, or moved by an operator. Renewals wake nobody. Of several clients that
// wait for a key, a release wakes the one that has waited longest; the others hear of it a little later, if the key is still free. Where the
// server cannot notify, because a transaction pooler is in between, the error matches errors.ErrUnsupported.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	line, err := s.listening(ctx)
	if err != nil {
		return nil, err
	}
	c, ok := s.listener.add(ctx, line, key)
	if !ok {
		return nil, store.Unknown(errLineLost)
	}
	return c, nil
}

var errLineLost = errors.New("postgres: the connection that listens has just been lost; ask again")

// listening makes sure that the store listens. Its errors are the caller's.
func (s *Store) listening(ctx context.Context) (*line, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	on, err := s.listener.listening(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		err = store.Unknown(explain(ctx, err))
	}
	return on, err
}

// add enters a watcher, unless the line that it counts on has ended.
func (l *listener) add(ctx context.Context, on *line, key string) (c chan struct{}, ok bool) {
	c = make(chan struct{}, 1) // one pending wake-up stands for any number of changes
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != on || l.closed {
		return nil, false
	}
	l.waits = true
	w := l.keys[key]
	if w == nil {
		w = &watched{watchers: map[chan struct{}]func() bool{}, until: l.left[key]}
		delete(l.left, key)
		l.keys[key] = w
	}
	w.watchers[c] = context.AfterFunc(ctx, func() { l.remove(key, c) })
	if time.Until(w.until) < refresh {
		l.enterLater(key, w)
	}
	return c, true
}

// enterLater makes sure that a key is entered before long. The caller holds the mutex.
func (l *listener) enterLater(key string, w *watched) {
	w.until = time.Time{}
	if w.late == nil {
		w.late = time.AfterFunc(l.late, func() { l.enterLate(key, w) })
	}
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
	if len(w.watchers) > 0 {
		return
	}
	w.stop()
	delete(l.keys, key)
	if time.Now().Before(w.until) {
		l.left[key] = w.until // if it is named yet, it passes the turn on
	}
}

// asking notes, for each request, whether its refusal is to enter this client among those who wait.
func (l *listener) asking(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.keys) == 0 {
		return
	}
	for i := range b.requests {
		if w := l.keys[b.requests[i].Key]; w != nil && w.until.IsZero() && b.requests[i].Verb == tenure.Acquire {
			if b.waiters == nil {
				b.waiters, b.turns = make([]string, len(b.requests)), make([]int, len(b.requests))
			}
			b.waiters[i], b.turns[i], b.line = l.id, w.turns, l.line
		}
	}
}

// asked notes which keys the server has entered this client for.
func (l *listener) asked(b *batch) {
	if b.waiters == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, id := range b.waiters {
		var held *tenure.HeldError
		switch {
		case id == "":
		case errors.As(b.answers[i].Err, &held):
			l.entered(b.line, b.requests[i].Key, b.turns[i])
		case b.answers[i].Err == nil:
			l.served(b.requests[i].Key)
		}
	}
}

// served notes that the server has taken this client off the list of those who wait for a key: it was granted. What was on its way to enter it may have been done before that, and is not counted. The
// caller holds the mutex.
func (l *listener) served(key string) {
	delete(l.left, key)
	if w := l.keys[key]; w != nil {
		w.turns++
		l.enterLater(key, w)
	}
}

// entered notes that the server counts this client among those who wait for a key, unless it was named since it asked for that: the news of its turn may be
// faster than the answer. An entry from before the line broke is not counted on: the server may be another now, or have forgotten it. The caller holds the mutex.
func (l *listener) entered(on *line, key string, turns int) {
	if l.line != on {
		return
	}
	until := time.Now().Add(registered)
	w := l.keys[key]
	switch {
	case w == nil:
		l.left[key] = until
	case w.turns == turns:
		w.until = until
		if w.late != nil {
			w.late.Stop()
			w.late = nil
		}
	}
}

// enterLate enters a key whose watchers have not asked for it, or not in vain. What happened before that may have escaped them, so they are woken.
func (l *listener) enterLate(key string, w *watched) {
	turns, on := 0, (*line)(nil)
	ctx, done := l.begin(func() bool {
		turns, on, w.late = w.turns, l.line, nil
		return l.keys[key] == w && w.until.IsZero()
	})
	if ctx == nil {
		return
	}
	defer done()
	s := l.store
	err := s.send(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, s.sql.wait, s.waitMillis(), l.id, []string{key}, int32(registered.Milliseconds()))
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.entered(on, key, turns)
	}
	switch {
	case l.keys[key] != w:
	case err != nil:
		l.drop(key, w) // its owners go on by polling
	default:
		w.wake()
	}
}

// begin begins an errand in the background, unless what it is for has passed.
// Its context ends in any case. The errand ends by done.
func (l *listener) begin(still func() bool) (ctx context.Context, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.line == nil || !still() {
		return nil, nil
	}
	l.errand.Add(1)
	ctx, cancel := context.WithTimeout(l.life, l.store.lockWait+longestProbe)
	return ctx, func() {
		cancel()
		l.errand.Done()
	}
}

// wake tells the watchers. The caller holds the mutex.
func (w *watched) wake() {
	if w.grace != nil {
		w.grace.Stop()
		w.grace = nil
	}
	for c := range w.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// stop ends what was to happen later. The caller holds the mutex.
func (w *watched) stop() {
	for _, t := range []*time.Timer{w.late, w.grace} {
		if t != nil {
			t.Stop()
		}
	}
	w.late, w.grace = nil, nil
}

// drop ends all watches of a key. The caller holds the mutex.
func (l *listener) drop(key string, w *watched) {
	w.stop()
	for c, stop := range w.watchers {
		stop()
		close(c)
	}
	delete(l.keys, key)
}

// close ends all watches, and takes this client off the lists of those who wait.
// Errands end first: one that is under way may be entering the client.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	line, waits := l.line, l.waits
	l.mu.Unlock()
	if line != nil {
		line.cancel()
		<-line.ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.farewell)
	defer cancel()
	stop := context.AfterFunc(ctx, l.end)
	l.errand.Wait()
	stop()
	l.end()
	if waits {
		_, _ = l.store.pool.Exec(ctx, l.store.sql.leave, l.id) // if it fails, the entries lapse
	}
}
