package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// echoes are how long after a notification its hint is repeated: a change that was under way when the notifier looked, and was committed after the woken worker did, has told nobody.
var echoes = []time.Duration{25 * time.Millisecond, 250 * time.Millisecond}

// ear is the one connection of a ledger that listens, while somebody waits.
type ear struct {
	log  *slog.Logger
	told sync.Once

	mu     sync.Mutex // never held while the server is asked: claims look here
	closed bool
	line   *earLine // from the first attempt to open it to its end
}

// earLine is one connection that listens, and who waits for what comes over it.
type earLine struct {
	life   context.Context
	cancel context.CancelFunc
	ready  chan struct{} // closed when it listens, or cannot
	err    error         // why it cannot; set before ready is closed
	waits  map[*wait]struct{}
}

// wait is somebody who wants hints.
type wait struct {
	queues []string // '' among them for the outbox
	c      chan struct{}
	line   *earLine
}

// hint is called with the ear's mutex held: the channel may be closed at any other time.
func (w *wait) hint() {
	select {
	case w.c <- struct{}{}:
	default: // one is waiting to be read already
	}
}

// Wake gives hints, over one connection for all who wait at this handle. Only what a claim or a taking of this handle has found empty is told of; see [Ledger.Claim].
func (l *Ledger) Wake(ctx context.Context, wanted work.Wanted) (<-chan struct{}, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	if err := l.make(ctx); err != nil {
		return nil, explain(ctx, err)
	}
	w := &wait{queues: slices.Clone(wanted.Queues), c: make(chan struct{}, 1)}
	if wanted.Effects {
		w.queues = append(w.queues, "")
	}
	if err := l.ear.join(ctx, l, w); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			l.ear.told.Do(func() {
				l.logger().Warn("croft: PostgreSQL cannot wake workers over this connection; they poll instead", "why", err,
					"advice", "connect to the server itself, or to a pooler in session mode, to have work begun at once")
			})
		}
		return nil, err
	}
	if _, err := l.pool.Exec(ctx, l.sql.workArm, list(w.queues)); err != nil {
		l.ear.leave(w)
		return nil, explain(ctx, err)
	}
	context.AfterFunc(ctx, func() { l.ear.leave(w) })
	l.ear.hint(func(who *wait) bool { return who == w }) // of what was added before; it may have ended meanwhile
	return w.c, nil
}

// listens reports whether somebody here waits for one of the queues.
func (e *ear) listens(queues ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.line == nil {
		return false
	}
	for w := range e.line.waits {
		for _, q := range w.queues {
			if slices.Contains(queues, q) {
				return true
			}
		}
	}
	return false
}

// join adds somebody, and opens the connection for the first. It returns when the connection listens.
func (e *ear) join(ctx context.Context, l *Ledger, w *wait) error {
	e.mu.Lock()
	if e.closed {
		defer e.mu.Unlock()
		return errLedgerClosed
	}
	if e.line == nil {
		e.line = &earLine{ready: make(chan struct{}), waits: map[*wait]struct{}{}}
		e.line.life, e.line.cancel = context.WithCancel(context.Background())
		go e.listen(l, e.line)
	}
	w.line = e.line
	w.line.waits[w] = struct{}{}
	e.mu.Unlock()
	select {
	case <-w.line.ready:
		return w.line.err
	case <-ctx.Done():
		e.leave(w)
		return over(ctx)
	}
}

// open takes a connection out of the pool for good, listens on it, and makes sure that notifications arrive: through some poolers they do not.
func (l *Ledger) open(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*longestProbe)
	defer cancel()
	pooled, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Hijack()
	if err := l.hears(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (l *Ledger) hears(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, l.sql.workListen); err != nil {
		if hasCode(err, "0A000") { // and not what a standby says: the next connection may lead to the primary
			return fmt.Errorf("%w: the server refuses LISTEN: %w", errors.ErrUnsupported, err)
		}
		return err
	}
	probe := probePrefix + string(tenure.NewSecret())
	if _, err := l.pool.Exec(ctx, l.sql.workNotify, list([]string{probe})); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, longestProbe)
	defer cancel()
	for {
		note, err := conn.WaitForNotification(bounded)
		switch {
		case err == nil && note.Payload == probe:
			return nil
		case err == nil: // nobody is told yet
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%w: a notification to itself did not arrive: there is a transaction pooler in between", errors.ErrUnsupported)
		default: // the connection broke, which says nothing of the next
			return err
		}
	}
}

// listen opens the connection and hands on what arrives until it breaks; then everybody who waits is told so by the end of their channel.
func (e *ear) listen(l *Ledger, n *earLine) {
	defer e.broke(n)
	conn, err := l.open(n.life)
	if err != nil {
		n.err = explain(n.life, err)
		if errors.Is(err, errors.ErrUnsupported) {
			n.err = err
		}
		e.broke(n) // before anybody learns of it: who asks again gets a new line
		close(n.ready)
		return
	}
	close(n.ready)
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	for {
		bounded, stop := context.WithTimeout(n.life, refresh)
		note, err := conn.WaitForNotification(bounded)
		stop()
		switch {
		case err == nil:
			e.hear(note.Payload)
			continue
		case n.life.Err() == nil && !conn.IsClosed():
			// Nothing has come for a while: is the line alive? Everybody looks again, in case it was not.
			bounded, stop := context.WithTimeout(n.life, longestProbe)
			err = conn.Ping(bounded)
			stop()
			if err == nil {
				e.hint(func(*wait) bool { return true })
				continue
			}
		}
		return
	}
}

// hear gives a hint to everybody who waits for the queue, now and a little later.
func (e *ear) hear(queue string) {
	told := func(w *wait) bool { return slices.Contains(w.queues, queue) }
	e.hint(told)
	for _, d := range echoes {
		time.AfterFunc(d, func() { e.hint(told) })
	}
}

func (e *ear) hint(whom func(*wait) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.line == nil {
		return
	}
	for w := range e.line.waits {
		if whom(w) {
			w.hint()
		}
	}
}

// leave lets go of somebody, and of the connection with the last.
func (e *ear) leave(w *wait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := w.line
	if _, there := n.waits[w]; !there {
		return
	}
	delete(n.waits, w)
	close(w.c)
	if len(n.waits) == 0 {
		e.end(n)
	}
}

// broke ends all hints of a line: their readers poll, or wait anew. Another that was opened meanwhile goes on.
func (e *ear) broke(n *earLine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range n.waits {
		close(w.c)
	}
	n.waits = nil
	e.end(n)
}

func (e *ear) end(n *earLine) {
	n.cancel()
	if e.line == n {
		e.line = nil
	}
}

// move gives up a connection that may listen at the wrong server: everybody who waits is told so, and waits anew.
func (e *ear) move() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.line != nil {
		e.line.cancel()
	}
}

func (e *ear) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.line != nil {
		e.line.cancel()
	}
}
