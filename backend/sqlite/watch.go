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
	"github.com/croft-dev/croft/tenure"
)

const (
	// pollEvery is how often a process with waiters looks whether another has
	// changed the file. Looking reads a few bytes of shared memory.
	pollEvery = 10 * time.Millisecond
	// pollShare bounds the work for thousands of keys in a file that changes all
	// the time to a tenth of a core: looking at them is followed by a pause that
	// is so many times as long.
	pollShare = 10
	// beginWait is how long Close waits for a watch that is just beginning.
	beginWait = time.Second
)

// watches is the driver of a store's hub: see package internal/turns. It tells
// of changes by this process at once. For changes by others it looks at the
// file. Nothing runs while nobody waits or listens.
type watches struct {
	store  *Store
	hub    *turns.Hub
	sooner chan struct{} // there is a new subscription: do not wait for actsEvery

	mu      sync.Mutex
	looking bool
	keys    map[string]watched // what is subscribed to: keys, and acts
	version int64              // of the file when it was last looked at, or never
	lastAct int64              // the id of the newest act that was read
}

// never is no version of a file.
const never = -1

// watched is a key that is subscribed to.
type watched struct {
	known bool
	seen  hands // whose the key was when it was last looked at
}

func newWatches(s *Store) *watches {
	w := &watches{store: s, sooner: make(chan struct{}, 1), keys: map[string]watched{}}
	w.hub = turns.NewHub(w)
	w.hub.Kept = 0 // keys that nobody waits for are not looked at
	return w
}

// Watch returns a channel that receives soon after the key may have changed
// hands: granted, released, or moved by an operator. Renewals wake nobody.
// Changes by other processes are seen within some ten milliseconds.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	c, err := s.watch.hub.Watch(ctx, key)
	if err != nil {
		return nil, cannotWatch(ctx, err)
	}
	return c, nil
}

// cannotWatch is why a watch did not begin.
func cannotWatch(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		err = over(ctx)
	case errors.Is(err, turns.ErrEnded):
		err = ErrClosed
	}
	return store.Unknown(err)
}

// Subscribe reads whose the key is, or which act was the last. Any later change
// is told.
func (w *watches) Subscribe(ctx context.Context, key string) (err error) {
	w.mu.Lock()
	w.keys[key] = watched{}
	w.mu.Unlock()
	var rec tenure.Record
	var last int64
	if key == acts {
		last, err = w.store.lastAct(ctx)
	} else {
		rec, err = w.store.read(ctx, key)
	}
	if err == nil {
		err = w.look(key, handsOf(&rec), last)
	}
	if err != nil {
		w.Unsubscribe(key)
		return err
	}
	w.hub.Opened(key)
	return nil
}

// Unsubscribe forgets a key. Looking ends with the last.
func (w *watches) Unsubscribe(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, key)
}

// look makes sure that somebody looks for changes since a subscription has read
// what it is about.
func (w *watches) look(key string, now hands, lastAct int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k, there := w.keys[key]; there && !k.known { // nobody has looked since
		w.keys[key] = watched{true, now}
	}
	if key == acts {
		w.lastAct = lastAct
		w.version = never // there may be an act since, in a file already looked at
	}
	if !w.looking {
		w.version = never
		w.looking = w.store.background(func() {
			if !w.lookOut() {
				w.broke()
			}
		})
	}
	if !w.looking {
		return ErrClosed
	}
	select {
	case w.sooner <- struct{}{}:
	default:
	}
	return nil
}

// note takes note of whose a key is, and returns what was known before.
func (w *watches) note(key string, now hands) (before watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, there := w.keys[key]
	if there {
		w.keys[key] = watched{true, now}
	}
	return before
}

// broke ends all watches. Their owners go on by polling, and may watch again.
func (w *watches) broke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = false
	clear(w.keys)
	w.hub.Broke()
}

// lookOut looks for changes by others for as long as somebody waits or listens.
// It reports false if it cannot.
func (w *watches) lookOut() bool {
	s := w.store
	ctx, cancel := s.untilClosed(setupWait)
	defer cancel()
	b, err := s.database(ctx)
	if err != nil {
		return false
	}
	conn, err := b.db.Conn(ctx) // always the same one: it counts the changes of all others
	if err != nil {
		return false
	}
	defer conn.Close()
	load, err := conn.PrepareContext(ctx, sqlLoad)
	if err != nil {
		return false
	}
	defer load.Close()
	defer w.settle(b.file)()
	tick := time.NewTimer(pollEvery)
	defer tick.Stop()
	for {
		// Before the keys are listed: a key that comes later is read later, too.
		version, err := dataVersion(context.Background(), conn)
		round := w.nextRound(version)
		if round.end {
			return true
		}
		next, sooner := pollEvery, (chan struct{})(nil)
		if len(round.keys) == 0 {
			next, sooner = actsEvery, w.sooner
		}
		if err == nil && round.changed {
			began := time.Now()
			err = w.compareAll(load, round.keys)
			if err == nil && round.heard {
				err = w.readActs(conn)
			}
			next = max(next, pollShare*time.Since(began))
		}
		if err != nil || b.moved() || s.apart(b, b.company) != nil {
			return false
		}
		tick.Reset(next)
		select {
		case <-tick.C:
		case <-sooner:
		case <-s.closing:
			return true // Close ends all watches
		}
	}
}

// dataVersion is a number that differs after another connection has changed the
// file.
func dataVersion(ctx context.Context, conn *sql.Conn) (version int64, err error) {
	err = conn.QueryRowContext(ctx, sqlDataVersion).Scan(&version)
	return version, err
}

// round is what to look at.
type round struct {
	keys    []string
	heard   bool // somebody listens, and lastAct is known
	changed bool // the file may have changed since the last time
	end     bool // nobody waits or listens: the caller stops looking
}

// nextRound lists what to look at in a version of the file.
func (w *watches) nextRound(version int64) round {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := round{heard: w.keys[acts].known, changed: w.version != version, end: len(w.keys) == 0}
	for key := range w.keys {
		if key != acts {
			r.keys = append(r.keys, key)
		}
	}
	w.version, w.looking = version, !r.end
	return r
}

// compareAll looks at keys, and wakes those who wait for one that is another's
// than when it was last looked at.
func (w *watches) compareAll(load *sql.Stmt, keys []string) error {
	for _, key := range keys {
		var id int64
		var packed []byte
		now := hands{}
		switch err := load.QueryRowContext(context.Background(), key).Scan(&id, &packed); {
		case err == nil:
			k, err := unpack(key, packed)
			if err != nil {
				continue // an acquire says so
			}
			now = handsOf(&k.head)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		if k := w.note(key, now); k.known && k.seen != now {
			w.hub.Changed(key)
		}
	}
	return nil
}
