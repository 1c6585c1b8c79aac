package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
)

const (
	// pollEvery is how often a process with waiters looks whether another has changed the file. Looking reads a few bytes of shared memory.
	pollEvery = 10 * time.Millisecond
	// pollShare is how many times as long as it took to look at the keys it lets pass before it looks again: thousands of them, in a file that changes all the time, take a tenth of a
	// core and no more.
	pollShare = 10
)

// watches wakes the waiters of one store, and tells its listeners of operators'
// acts: for changes of its own process at once, for those of others it looks.
// Nothing runs while nobody waits or listens.
type watches struct {
	mu      sync.Mutex
	keys    map[string]*watched
	looking bool
	sooner  chan struct{} // a key is waited for: do not wait for actsEvery

	acts    turns.Acts
	heard   bool  // somebody listens, and lastAct is known
	lastAct int64 // the id of the newest act that was read
	unread  bool  // there may be acts since, though the file is unchanged
}

// watched is a key with watchers.
type watched struct {
	watchers map[chan struct{}]struct{}
	known    bool
	seen     hands // whose the key was when it was last looked at
}

// Watch returns a channel that receives soon after the key may have changed hands: granted, released, or moved by an operator. Renewals wake nobody. Changes by other processes are seen within
// some ten milliseconds.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	w := &s.watch
	c := w.add(key)
	rec, err := s.read(ctx, key) // whatever changes after this is a change
	if err != nil {
		w.remove(key, c)
		return nil, store.Unknown(err)
	}
	w.mu.Lock()
	if k := w.keys[key]; k != nil && !k.known {
		k.known, k.seen = true, handsOf(&rec)
	}
	w.mu.Unlock()
	if err := s.beginToLook(); err != nil {
		return nil, err
	}
	select {
	case w.sooner <- struct{}{}:
	default:
	}
	context.AfterFunc(ctx, func() { w.remove(key, c) })
	return c, nil
}

// beginToLook makes sure that somebody looks for changes by others.
func (s *Store) beginToLook() error {
	w := &s.watch
	w.mu.Lock()
	start := !w.looking && (len(w.keys) > 0 || w.acts.Heard())
	w.looking = w.looking || start
	w.mu.Unlock()
	if start && !s.background(s.lookOut) {
		w.broke()
		return store.Unknown(ErrClosed)
	}
	return nil
}

func (w *watches) add(key string) chan struct{} {
	c := make(chan struct{}, 1) // one pending wake-up stands for any number of changes
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[key]
	if k == nil {
		k = &watched{watchers: map[chan struct{}]struct{}{}}
		w.keys[key] = k
	}
	k.watchers[c] = struct{}{}
	return c
}

// remove ends a watch. It may be called twice.
func (w *watches) remove(key string, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[key]
	if k == nil {
		return
	}
	if _, there := k.watchers[c]; !there {
		return
	}
	delete(k.watchers, c)
	close(c) // under the mutex: nobody is waking it
	if len(k.watchers) == 0 {
		delete(w.keys, key)
	}
}

// wake tells the watchers of a key whose it is now.
func (w *watches) wake(key string, now hands) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[key]
	if k == nil {
		return
	}
	k.known, k.seen = true, now
	for c := range k.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// compare wakes the watchers of a key that is another's than when it was last looked at.
func (w *watches) compare(key string, now hands) {
	w.mu.Lock()
	k := w.keys[key]
	changed := k != nil && k.known && k.seen != now
	if k != nil && !k.known { // its watch is just beginning, and may have read what was there before: from now on this counts
		k.known, k.seen = true, now
	}
	w.mu.Unlock()
	if changed {
		w.wake(key, now)
	}
}

// watching lists the keys with watchers. It says whether somebody listens, and
// whether acts must be read even if the file is unchanged. If nobody waits or
// listens, the caller stops looking.
func (w *watches) watching() (list []string, heard, unread bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make([]string, 0, len(w.keys))
	for key := range w.keys {
		keys = append(keys, key)
	}
	w.heard = w.heard && w.acts.Heard()
	w.looking = len(keys) > 0 || w.heard
	unread, w.unread = w.unread, false
	return keys, w.heard, unread
}

// broke ends all watches: their owners go on by polling, and may watch again.
func (w *watches) broke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking, w.heard = false, false
	w.acts.End()
	for key, k := range w.keys {
		for c := range k.watchers {
			close(c)
		}
		delete(w.keys, key)
	}
}

// lookOut looks for changes by others for as long as somebody waits or listens.
func (s *Store) lookOut() {
	ctx, cancel := s.untilClosed(setupWait)
	defer cancel()
	b, err := s.database(ctx)
	if err != nil {
		s.watch.broke()
		return
	}
	conn, err := b.db.Conn(ctx) // always the same one: it counts the changes of all others
	if err != nil {
		s.watch.broke()
		return
	}
	defer conn.Close()
	load, err := conn.PrepareContext(ctx, sqlLoad)
	if err != nil {
		s.watch.broke()
		return
	}
	defer load.Close()
	defer s.watch.settle(b.file)()
	tick := time.NewTimer(pollEvery)
	defer tick.Stop()
	for last := int64(-1); ; {
		keys, heard, unread := s.watch.watching()
		if len(keys) == 0 && !heard {
			return
		}
		next, sooner := pollEvery, (chan struct{})(nil)
		if len(keys) == 0 {
			next, sooner = actsEvery, s.watch.sooner
		}
		version, err := dataVersion(context.Background(), conn)
		if err == nil && (unread || version != last) {
			last = version
			began := time.Now()
			err = s.compareAll(load, keys)
			if err == nil && heard {
				err = s.watch.readActs(conn)
			}
			next = max(next, pollShare*time.Since(began))
		}
		if err != nil || b.moved() || s.apart(b, b.company) != nil {
			s.watch.broke()
			return
		}
		tick.Reset(next)
		select {
		case <-tick.C:
		case <-sooner:
		case <-s.closing:
			s.watch.broke()
			return
		}
	}
}

// dataVersion is a number that differs after another connection has changed the file.
func dataVersion(ctx context.Context, conn *sql.Conn) (version int64, err error) {
	err = conn.QueryRowContext(ctx, sqlDataVersion).Scan(&version)
	return version, err
}

// compareAll looks at every watched key.
func (s *Store) compareAll(load *sql.Stmt, keys []string) error {
	for _, key := range keys {
		var id int64
		var packed []byte
		now := hands{}
		switch err := load.QueryRowContext(context.Background(), key).Scan(&id, &packed); {
		case err == nil:
			k, err := unpack(key, packed)
			if err != nil {
				continue // whoever asks is told
			}
			now = handsOf(&k.head)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		s.watch.compare(key, now)
	}
	return nil
}
