package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// A notification is a key that may have changed, unless it begins with one of
// these. No key begins so. See migrations/012_wait.sql.
const (
	probePrefix = "\x01probe " // a listener asks whether notifications arrive
	turnPrefix  = "\x02"       // a key is free: the id of the client whose turn it is, and the key
	takenPrefix = "\x03"       // a key has been granted
	actPrefix   = "\x04"       // an operator has acted on a key; also the hub's topic
)

const (
	// longestProbe is how long the listener's own notification may take to come
	// back.
	longestProbe = 5 * time.Second
	// refresh is the length of silence after which the listener asks whether
	// its connection is alive.
	refresh = 20 * time.Second
	// cannotFor is how long the listener does not ask a server again that could
	// not notify. By then it may be another server, or reached in another way.
	cannotFor = 5 * time.Minute
)

// listener is the driver of a store's hub. It has the one connection that
// listens, for all keys and for operators' acts.
type listener struct {
	store    *Store
	log      *slog.Logger
	id       string        // names the store in queues
	farewell time.Duration // how long close tries to step out of queues; longer in tests

	mu         sync.Mutex
	connection *connection // nil while there is none
	cannot     cannot
	closed     bool
}

// cannot remembers that the server cannot notify, and why.
type cannot struct {
	err    error
	until  time.Time
	warned sync.Once
}

// connection is a connection that listens, from the first attempt to open it to
// its end.
type connection struct {
	life    context.Context
	cancel  context.CancelFunc
	ready   chan struct{} // closed when it listens, or cannot
	err     error         // why it cannot; set before ready is closed
	listens bool          // under the listener's mutex
	ended   chan struct{}
}

func newListener(s *Store, log *slog.Logger) *listener {
	return &listener{store: s, log: log, id: rand.Text()[:13], farewell: time.Second}
}

// listening makes sure that the connection listens. All who ask at once share
// one attempt to open it.
func (l *listener) listening(ctx context.Context) error {
	l.mu.Lock()
	if l.cannot.err != nil && time.Now().Before(l.cannot.until) {
		defer l.mu.Unlock()
		return l.cannot.err
	}
	if l.closed {
		defer l.mu.Unlock()
		return ErrClosed
	}
	k := l.connection
	if k == nil {
		k = &connection{ready: make(chan struct{}), ended: make(chan struct{})}
		k.life, k.cancel = context.WithCancel(context.Background())
		l.connection = k
		go l.run(k)
	}
	l.mu.Unlock()
	select {
	case <-k.ready:
		return k.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run opens the connection and listens until it breaks.
func (l *listener) run(k *connection) {
	defer close(k.ended)
	defer k.cancel()
	defer l.broke(k)
	conn, err := l.open(k.life)
	if err != nil {
		k.err = err
		l.broke(k) // before ready: the next call opens a new connection
		close(k.ready)
		return
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	l.mu.Lock()
	k.listens = true
	l.mu.Unlock()
	close(k.ready)
	for {
		bounded, stop := context.WithTimeout(k.life, refresh)
		note, err := conn.WaitForNotification(bounded)
		stop()
		switch {
		case err == nil:
			l.hear(note.Payload)
		case k.life.Err() != nil || conn.IsClosed() || !alive(k.life, conn):
			return
		}
	}
}

// alive reports whether a connection still leads to a server that takes
// changes. A server that has become read-only notifies nobody.
func alive(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, longestProbe)
	defer cancel()
	var readOnly string
	err := conn.QueryRow(ctx, "SHOW transaction_read_only").Scan(&readOnly)
	return err == nil && readOnly == "off"
}

// hear passes a notification on to the hub. Every role of the database can send
// one. So an operator's act is passed on only if it names a valid key.
func (l *listener) hear(payload string) {
	hub := l.store.hub
	switch {
	case strings.HasPrefix(payload, probePrefix):
	case strings.HasPrefix(payload, turnPrefix):
		id, key, _ := strings.Cut(strings.TrimPrefix(payload, turnPrefix), " ")
		hub.Freed(key, id == l.id)
	case strings.HasPrefix(payload, takenPrefix):
		hub.Taken(strings.TrimPrefix(payload, takenPrefix))
	case strings.HasPrefix(payload, actPrefix):
		if key := strings.TrimPrefix(payload, actPrefix); fence.CheckKey(key) == nil {
			hub.Acted(actPrefix, key)
		}
	default:
		hub.Changed(payload)
	}
}

// leave gives up a connection that may lead to the wrong server. The next watch
// opens another.
func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection != nil {
		l.connection.cancel()
	}
}

// broke ends all watches, and the announcements of acts. Their owners go on by
// polling, and may watch again.
func (l *listener) broke(k *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection == k {
		l.connection = nil
		l.store.hub.Broke()
	}
}

// close ends all watches, steps out of all queues, and ends the connection.
func (l *listener) close() {
	ctx, cancel := context.WithTimeout(context.Background(), l.farewell)
	defer cancel()
	l.store.hub.End(ctx)
	l.mu.Lock()
	l.closed = true
	k := l.connection
	l.mu.Unlock()
	if k != nil {
		k.cancel()
		<-k.ended
	}
}

// open takes a connection out of the pool for good, listens on it, and makes
// sure that notifications arrive.
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
		if hasCode(err, "0A000") { // a standby says something else; the next may be the primary
			return fail(l.unsupported("the server refuses LISTEN: " + err.Error()))
		}
		return fail(err)
	}
	// A transaction pooler accepts LISTEN, but gives the server's connection to
	// another client. Then nothing ever arrives.
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
			return fail(l.unsupported("a notification to itself did not arrive: " +
				"there is a transaction pooler in between"))
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
	l.cannot.warned.Do(func() {
		l.log.Warn("croft: PostgreSQL cannot notify over this connection; "+
			"waiters poll instead, and holders learn of operators' acts by renewing", "why", why,
			"advice", "connect to the server itself, or to a pooler in session mode, "+
				"to have leases handed over at once")
	})
	return l.cannot.err
}
