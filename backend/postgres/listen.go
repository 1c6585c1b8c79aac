package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/tenure"
)

// probePrefix begins what is no key: the notification by which a listener learns whether notifications arrive.
const probePrefix = "\x01probe "

// longestProbe is how long the listener's own notification may take to come back.
const longestProbe = 5 * time.Second

// line is one connection that listens, from the first attempt to open it to its end.
type line struct {
	ready  chan struct{} // closed when it listens, or cannot
	err    error         // why it cannot; set before ready is closed
	ended  chan struct{}
	cancel context.CancelFunc
}

// listening makes sure that the connection listens.
func (l *listener) listening(ctx context.Context) error {
	l.mu.Lock()
	if l.cannot != nil {
		defer l.mu.Unlock()
		return l.cannot
	}
	if l.closed {
		defer l.mu.Unlock()
		return ErrClosed
	}
	n := l.line
	if n == nil {
		own, cancel := context.WithCancel(context.Background())
		n = &line{ready: make(chan struct{}), ended: make(chan struct{}), cancel: cancel}
		l.line = n
		go l.run(own, n)
	}
	l.mu.Unlock()
	select {
	case <-n.ready:
		return n.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run opens the connection and listens until it breaks.
func (l *listener) run(ctx context.Context, n *line) {
	defer close(n.ended)
	defer n.cancel()
	defer l.broke(n)
	conn, err := l.open(ctx)
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
	go l.keepRegistered(ctx)
	for {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		l.wake(note.Payload)
	}
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
		if hasCode(err, "0A000") || hasCode(err, "25006") {
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
		case err == nil:
			l.wake(note.Payload)
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return fail(l.unsupported("a notification to itself did not arrive: there is a transaction pooler in between"))
		default:
			return fail(err)
		}
	}
}
