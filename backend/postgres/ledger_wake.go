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

// echoes are the delays after which the hint of a notification is repeated. Two
// transactions may add work at the same time, and only one of them notifies. If
// the other commits after the woken worker has looked, it has told nobody.
var echoes = []time.Duration{25 * time.Millisecond, 250 * time.Millisecond}

// ear is a ledger's listening connection and its waiters. The connection is
// open while somebody waits. See the package comment.
type ear struct {
	log  *slog.Logger
	told sync.Once

	mu     sync.Mutex // never held while the server is asked: claims look here
	closed bool
	line   *earLine // from the first attempt to open it until its end
}

// earLine is one connection that listens, with its waiters.
type earLine struct {
	life   context.Context
	cancel context.CancelFunc
	ready  chan struct{} // closed when it listens, or cannot
	err    error         // why it cannot; set before ready is closed
	waits  map[*wait]struct{}
}

// wait is one call of Wake that still wants hints.
type wait struct {
	queues []string // "" means the outbox
	c      chan struct{}
	line   *earLine
}

// hint puts a hint into the channel. The caller holds the ear's mutex, because
// leave and broke close the channel.
func (w *wait) hint() {
	select {
	case w.c <- struct{}{}:
	default: // a hint waits already
	}
}

// Wake returns a channel that receives hints of new work. All waiters of this
// handle share one connection. Hints come only for queues that a claim, or a
// Take, of this handle has found empty; see [Ledger.Claim].
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
				l.logger().Warn("croft: PostgreSQL cannot wake workers over this connection; they poll instead",
					"why", err, "advice", "connect to the server itself, or to a pooler in session mode, "+
						"to have work begun at once")
			})
		}
		return nil, err
	}
	if _, err := l.pool.Exec(ctx, l.sql.workArm, list(w.queues)); err != nil {
		l.ear.leave(w)
		return nil, explain(ctx, err)
	}
	context.AfterFunc(ctx, func() { l.ear.leave(w) })
	l.ear.hint(func(who *wait) bool { return who == w }) // for work added before
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

// join adds a waiter, and opens the connection for the first one. It returns
// when the connection listens, or cannot.
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

// open takes a connection out of the pool for good and listens on it. It makes
// sure that notifications arrive: through some poolers they do not.
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
		if hasCode(err, "0A000") { // a standby says something else; the next may be the primary
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
		case err == nil: // nobody waits yet
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%w: a notification to itself did not arrive: "+
				"there is a transaction pooler in between", errors.ErrUnsupported)
		default: // the connection broke; the next may work
			return err
		}
	}
}

// listen opens the connection and passes hints on until it breaks. Then it
// closes the channels of all waiters.
func (e *ear) listen(l *Ledger, n *earLine) {
	defer e.broke(n)
	conn, err := l.open(n.life)
	if err != nil {
		n.err = explain(n.life, err)
		if errors.Is(err, errors.ErrUnsupported) {
			n.err = err
		}
		e.broke(n) // before ready: the next call opens a new connection
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
			// Nothing has come for a while. If the connection is alive, let
			// everybody look again, in case it was not for a time.
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

// hear gives a hint to all waiters of the queue, now and a little
// later.
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

// leave removes a waiter. With the last one the connection ends.
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

// broke ends all hints of a connection. Its waiters poll, or wait anew. A newer
// connection goes on.
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

// move gives up a connection that may lead to the wrong server. The waiters'
// channels are closed, and they wait anew.
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
