package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/tenure"
)

// What begins a notification that is not simply a key; see the migration that makes the functions of waiting.
const (
	probePrefix = "\x01probe " // by which a listener learns whether notifications arrive
	turnPrefix  = "\x02"       // whose turn it is, and the key
	takenPrefix = "\x03"       // a key that has been granted
	actPrefix   = "\x04"       // a key that an operator has acted on
)

// longestProbe is how long the listener's own notification may take to come back.
const longestProbe = 5 * time.Second

// cannotFor is how long a server that could not notify is not asked again. It may be another by then, or reached in another way.
const cannotFor = 5 * time.Minute

// cannot is what is known of a server that cannot notify.
type cannot struct {
	err   error
	until time.Time
	told  sync.Once
}

// line is one connection that listens, from the first attempt to open it to its end.
type line struct {
	life   context.Context
	cancel context.CancelFunc
	ready  chan struct{} // closed when it listens, or cannot
	err    error         // why it cannot; set before ready is closed
	ended  chan struct{}
}

// listening makes sure that the connection listens.
func (l *listener) listening(ctx context.Context) (*line, error) {
	l.mu.Lock()
	if l.cannot.err != nil && time.Now().Before(l.cannot.until) {
		defer l.mu.Unlock()
		return nil, l.cannot.err
	}
	if l.closed {
		defer l.mu.Unlock()
		return nil, ErrClosed
	}
	n := l.line
	if n == nil {
		n = &line{ready: make(chan struct{}), ended: make(chan struct{})}
		n.life, n.cancel = context.WithCancel(context.Background())
		l.line = n
		go l.run(n)
	}
	l.mu.Unlock()
	select {
	case <-n.ready:
		return n, n.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run opens the connection and listens until it breaks.
func (l *listener) run(n *line) {
	defer close(n.ended)
	defer n.cancel()
	defer l.broke(n)
	conn, err := l.open(n.life)
	if err != nil {
		n.err = err
		l.broke(n) // before anybody learns of it: who asks again gets a new line
		close(n.ready)
		return
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	close(n.ready)
	for due := time.Now().Add(refresh); ; {
		bounded, stop := context.WithDeadline(n.life, due)
		note, err := conn.WaitForNotification(bounded)
		stop()
		switch {
		case err == nil:
			l.hear(note.Payload)
		case n.life.Err() != nil || conn.IsClosed():
			return
		}
		if !time.Now().Before(due) {
			if l.tend(n.life, conn) != nil {
				return
			}
			due = time.Now().Add(refresh)
		}
	}
}

// tend makes sure that the line is alive, over which nothing may have come for a while, and enters the watched keys again before the database forgets them.
func (l *listener) tend(ctx context.Context, conn *pgx.Conn) error {
	l.mu.Lock()
	var keys []string
	for key, w := range l.keys {
		if !w.until.IsZero() {
			keys = append(keys, key)
		}
	}
	now := time.Now()
	for key, until := range l.left {
		if now.After(until) {
			delete(l.left, key)
		}
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.store.lockWait+longestProbe)
	defer cancel()
	if len(keys) == 0 {
		return conn.Ping(ctx)
	}
	_, err := conn.Exec(ctx, l.store.sql.wait, l.store.waitMillis(), l.id, keys, int32(registered.Milliseconds()))
	if err != nil && (conn.IsClosed() || hasCode(err, readOnly)) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		w := l.keys[key]
		if w == nil {
			continue
		}
		if err != nil { // one row that stays locked, perhaps: the others must not be forgotten because of it
			if time.Until(w.until) < refresh+refresh/2 { // or the next time is early enough
				l.enterLater(key, w)
			}
			continue
		}
		if w.until.Round(0).Before(time.Now().Round(0)) { // by the wall clock: the machine slept, and they had been forgotten for a while
			w.wake()
		}
		w.until = time.Now().Add(registered)
	}
	return nil
}

// hear acts upon a notification.
func (l *listener) hear(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.HasPrefix(payload, probePrefix):
	case strings.HasPrefix(payload, turnPrefix):
		id, key, _ := strings.Cut(strings.TrimPrefix(payload, turnPrefix), " ")
		w := l.keys[key]
		switch {
		case id == l.id && w != nil:
			w.turns++
			l.enterLater(key, w) // and before that if it asks in vain
			w.wake()
		case id == l.id:
			delete(l.left, key)
			go l.pass(key)
		case w != nil && w.grace == nil:
			w.grace = time.AfterFunc(grace+rand.N(grace/2), func() { l.graceOver(key, w) })
		}
	case strings.HasPrefix(payload, takenPrefix):
		if w := l.keys[strings.TrimPrefix(payload, takenPrefix)]; w != nil && w.grace != nil {
			w.grace.Stop()
			w.grace = nil
		}
	case strings.HasPrefix(payload, actPrefix):
		l.acted(strings.TrimPrefix(payload, actPrefix))
	default:
		if w := l.keys[payload]; w != nil {
			w.wake()
		}
	}
}

// graceOver wakes those who left a key to another that did not come.
func (l *listener) graceOver(key string, w *watched) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[key] == w {
		w.wake()
	}
}

// pass lets the next one have the turn of a client whose watchers have gone. If it fails, the others come when their grace is over.
func (l *listener) pass(key string) {
	ctx, done := l.begin(func() bool { return true })
	if ctx == nil {
		return
	}
	defer done()
	s := l.store
	_ = s.send(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, s.sql.pass, s.waitMillis(), key)
		return err
	})
}

// leave gives up a connection that may listen at the wrong server. The next watch opens another.
func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != nil {
		l.line.cancel()
	}
}

// broke ends all watches: their owners go on by polling, and may watch again.
// It also ends the announcements of acts.
func (l *listener) broke(which *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != which {
		return
	}
	l.line = nil
	for key, w := range l.keys {
		l.drop(key, w)
	}
	clear(l.left)
	l.acts.End()
}

// open takes a connection out of the pool for good, listens on it, and makes sure that notifications arrive.
func (l *listener) open(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*longestProbe)
	defer cancel()
	s := l.store
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Hijack()
	fail := func(err error) (*pgx.Conn, error) {
		_ = conn.Close(ctx)
		return nil, err
	}
	if _, err := conn.Exec(ctx, s.sql.listen); err != nil {
		if hasCode(err, "0A000") { // and not what a standby says: the next connection may lead to the primary
			return fail(l.unsupported("the server refuses LISTEN: " + err.Error()))
		}
		return fail(err)
	}
	// A transaction pooler takes LISTEN, gives the server's connection to somebody else, and nothing ever arrives.
	probe := probePrefix + string(tenure.NewSecret())
	if _, err := s.pool.Exec(ctx, s.sql.probe, probe); err != nil {
		return fail(err)
	}
	bounded, stop := context.WithTimeout(ctx, longestProbe)
	defer stop()
	for {
		note, err := conn.WaitForNotification(bounded)
		switch {
		case err == nil && note.Payload == probe:
			return conn, nil
		case err == nil: // nobody watches yet
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return fail(l.unsupported("a notification to itself did not arrive: there is a transaction pooler in between"))
		default:
			return fail(err)
		}
	}
}

// unsupported remembers that the server cannot notify, and says so once.
func (l *listener) unsupported(why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cannot.err = fmt.Errorf("postgres: %s: waiters ask again instead, and holders renew: %w",
		why, errors.ErrUnsupported)
	l.cannot.until = time.Now().Add(cannotFor)
	l.cannot.told.Do(func() {
		l.log.Warn("croft: PostgreSQL cannot notify over this connection; "+
			"waiters poll instead, and holders learn of operators' acts by renewing", "why", why,
			"advice", "connect to the server itself, or to a pooler in session mode, to have leases handed over at once")
	})
	return l.cannot.err
}
