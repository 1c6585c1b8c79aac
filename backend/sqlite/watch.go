package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/tenure"
)

const (
	// pollEvery is how often a store with waiters checks whether another
	// connection has changed the file. A check reads a few bytes of shared
	// memory.
	pollEvery = 10 * time.Millisecond
	// pollShare is how many times longer a pause is than the comparing of keys
	// before it. So watching thousands of keys in a busy file takes a tenth of
	// a core at most.
	pollShare = 10
	// beginWait is how long Close waits for a watch that is just beginning.
	beginWait = time.Second
)

// watches is the driver of a store's hub: see package internal/turns. The store
// announces changes of this process to it at once. For changes of other
// processes it polls the file, in a goroutine that runs only while the hub is
// subscribed to something.
type watches struct {
	store  *Store
	hub    *turns.Hub
	sooner chan struct{} // holds a token after a new subscription: do not wait for actsEvery

	mu      sync.Mutex
	polling bool               // the goroutine of poll runs
	keys    map[string]watched // the subscriptions: keys, and acts
	version int64              // the data version that was last compared, or never
	lastAct int64              // the id of the newest act that was read
}

// never is a number that no data version has.
const never = -1

// watched is the state of a subscription to a key.
type watched struct {
	known bool      // seen is set
	seen  ownership // the key's ownership when it was last read
}

func newWatches(s *Store) *watches {
	w := &watches{store: s, sooner: make(chan struct{}, 1), keys: map[string]watched{}}
	w.hub = turns.NewHub(w)
	w.hub.Closed = ErrClosed
	w.hub.Kept = 0 // end subscriptions with their last waiter
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
	return s.watch.hub.Watch(ctx, key)
}

// Subscribe reads the key's ownership, or the last act. The hub hears of every
// change after that.
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
		err = w.startPolling(key, ownershipOf(&rec), last)
	}
	if err != nil {
		w.Unsubscribe(key)
		return err
	}
	w.hub.Opened(key)
	return nil
}

// Unsubscribe drops a subscription. Polling ends with the last.
func (w *watches) Unsubscribe(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, key)
}

// startPolling stores what a new subscription has read. It starts the goroutine
// of poll if it does not run. Its error is ErrClosed.
func (w *watches) startPolling(key string, now ownership, lastAct int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k, there := w.keys[key]; there && !k.known { // else poll has read the key since
		w.keys[key] = watched{true, now}
	}
	if key == acts {
		w.lastAct = lastAct
		w.version = never // an act may have come between reading lastAct and now
	}
	if !w.polling {
		w.version = never
		w.polling = w.store.background(func() {
			if !w.poll() {
				w.broke()
			}
		})
	}
	if !w.polling {
		return ErrClosed
	}
	select {
	case w.sooner <- struct{}{}:
	default:
	}
	return nil
}

// note stores the ownership of a key, and returns the state before.
func (w *watches) note(key string, now ownership) (before watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, there := w.keys[key]
	if there {
		w.keys[key] = watched{true, now}
	}
	return before
}

// broke ends all watches. Their owners ask the store from time to time instead,
// and may watch again.
func (w *watches) broke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polling = false
	clear(w.keys)
	w.hub.Broke()
}

// poll polls for changes by other processes while there are subscriptions.
// It reports false if it fails.
func (w *watches) poll() bool {
	s := w.store
	ctx, cancel := s.untilClosed(setupWait)
	defer cancel()
	b, err := s.database(ctx)
	if err != nil {
		return false
	}
	conn, err := b.db.Conn(ctx) // data_version can be compared only on one connection
	if err != nil {
		return false
	}
	defer conn.Close()
	load, err := conn.PrepareContext(ctx, sqlLoad)
	if err != nil {
		return false
	}
	defer load.Close()
	defer w.addNeighbour(b.file)()
	tick := time.NewTimer(pollEvery)
	defer tick.Stop()
	for {
		// Read the version before listing the keys: a key that is added in
		// between is read after the version, so no change is missed.
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
		if err != nil || b.moved() || s.checkSideFiles(b, b.sideFiles) != nil {
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

// dataVersion returns a number that differs after another connection has
// changed the file.
func dataVersion(ctx context.Context, conn *sql.Conn) (version int64, err error) {
	err = conn.QueryRowContext(ctx, sqlDataVersion).Scan(&version)
	return version, err
}

// round says what poll does next.
type round struct {
	keys    []string // to be compared
	heard   bool     // read acts: there are listeners, and lastAct is known
	changed bool     // the file may have changed since the last round
	end     bool     // there are no subscriptions: stop
}

// nextRound plans the next round for a data version. If it says end, it has
// already noted that polling has ended.
func (w *watches) nextRound(version int64) round {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := round{heard: w.keys[acts].known, changed: w.version != version, end: len(w.keys) == 0}
	for key := range w.keys {
		if key != acts {
			r.keys = append(r.keys, key)
		}
	}
	w.version, w.polling = version, !r.end
	return r
}

// compareAll reads keys, and wakes the waiters of those that have changed hands
// since they were last read.
func (w *watches) compareAll(load *sql.Stmt, keys []string) error {
	for _, key := range keys {
		var id int64
		var packed []byte
		now := ownership{}
		switch err := load.QueryRowContext(context.Background(), key).Scan(&id, &packed); {
		case err == nil:
			k, err := unpack(key, packed)
			if err != nil {
				continue // damaged: an acquire reports it
			}
			now = ownershipOf(&k.head)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		if k := w.note(key, now); k.known && k.seen != now {
			w.hub.Changed(key)
		}
	}
	return nil
}
