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

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// echoes are the delays after which the hint of a notification is repeated. Two
// transactions may add work at the same time, and only one of them notifies. If
// the other commits after the woken worker has looked, it has told nobody.
var echoes = []time.Duration{25 * time.Millisecond, 250 * time.Millisecond}

// workListener is a ledger's listening connection and its waiters. The
// connection is open while somebody waits. See the package comment.
type workListener struct {
	log    *slog.Logger
	warned sync.Once

	mu         sync.Mutex // never held while the server is asked: claims look here
	closed     bool
	connection *workConnection // from the first attempt to open it until its end
}

// workConnection is one connection that listens, with its waiters.
type workConnection struct {
	life    context.Context
	cancel  context.CancelFunc
	ready   chan struct{} // closed when it listens, or cannot
	err     error         // why it cannot; set before ready is closed
	waiters map[*workWaiter]struct{}
}

// workWaiter is one call of Wake that still wants hints.
type workWaiter struct {
	queues     []string // "" means the outbox
	c          chan struct{}
	connection *workConnection
}

// hint puts a hint into the channel. The caller holds the listener's mutex,
// because leave and broke close the channel.
func (w *workWaiter) hint() {
	select {
	case w.c <- struct{}{}:
	default: // a hint waits already
	}
}

// Wake returns a channel that receives hints of new work. All waiters of this
// handle share one connection. Wake arms the wanted queues. A hint disarms its
// queue, until a claim or a Take of this handle finds nothing there; see
// [Ledger.Claim].
func (l *Ledger) Wake(ctx context.Context, wanted work.Wanted) (<-chan struct{}, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	if err := l.make(ctx); err != nil {
		return nil, explain(ctx, err)
	}
	w := &workWaiter{queues: slices.Clone(wanted.Queues), c: make(chan struct{}, 1)}
	if wanted.Effects {
		w.queues = append(w.queues, "")
	}
	if err := l.listener.join(ctx, l, w); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			l.listener.warned.Do(func() {
				l.logger().Warn("croft: PostgreSQL cannot wake workers over this connection; they poll instead",
					"why", err, "advice", "connect to the server itself, or to a pooler in session mode, "+
						"to have work begun at once")
			})
		}
		return nil, err
	}
	if _, err := l.pool.Exec(ctx, l.sql.workArm, list(w.queues)); err != nil {
		l.listener.leave(w)
		return nil, explain(ctx, err)
	}
	context.AfterFunc(ctx, func() { l.listener.leave(w) })
	l.listener.hint(func(who *workWaiter) bool { return who == w }) // for work added before
	return w.c, nil
}

// listens reports whether somebody here waits for one of the queues.
func (n *workListener) listens(queues ...string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connection == nil {
		return false
	}
	for w := range n.connection.waiters {
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
func (n *workListener) join(ctx context.Context, l *Ledger, w *workWaiter) error {
	n.mu.Lock()
	if n.closed {
		defer n.mu.Unlock()
		return errLedgerClosed
	}
	if n.connection == nil {
		n.connection = &workConnection{ready: make(chan struct{}), waiters: map[*workWaiter]struct{}{}}
		n.connection.life, n.connection.cancel = context.WithCancel(context.Background())
		go n.listen(l, n.connection)
	}
	w.connection = n.connection
	w.connection.waiters[w] = struct{}{}
	n.mu.Unlock()
	select {
	case <-w.connection.ready:
		return w.connection.err
	case <-ctx.Done():
		n.leave(w)
		return wait.Ended(ctx)
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
	if err := l.listenAndProbe(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (l *Ledger) listenAndProbe(ctx context.Context, conn *pgx.Conn) error {
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
func (n *workListener) listen(l *Ledger, k *workConnection) {
	defer n.broke(k)
	conn, err := l.open(k.life)
	if err != nil {
		k.err = explain(k.life, err)
		if errors.Is(err, errors.ErrUnsupported) {
			k.err = err
		}
		n.broke(k) // before ready: the next call opens a new connection
		close(k.ready)
		return
	}
	close(k.ready)
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	for {
		bounded, stop := context.WithTimeout(k.life, refresh)
		note, err := conn.WaitForNotification(bounded)
		stop()
		switch {
		case err == nil:
			n.hear(note.Payload)
			continue
		case k.life.Err() == nil && !conn.IsClosed():
			// Nothing has come for a while. If the connection is alive, let
			// everybody look again, in case it was not for a time.
			bounded, stop := context.WithTimeout(k.life, longestProbe)
			err = conn.Ping(bounded)
			stop()
			if err == nil {
				n.hint(func(*workWaiter) bool { return true })
				continue
			}
		}
		return
	}
}

// hear gives a hint to all waiters of the queue, now and a little later.
func (n *workListener) hear(queue string) {
	waits := func(w *workWaiter) bool { return slices.Contains(w.queues, queue) }
	n.hint(waits)
	for _, d := range echoes {
		time.AfterFunc(d, func() { n.hint(waits) })
	}
}

func (n *workListener) hint(whom func(*workWaiter) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connection == nil {
		return
	}
	for w := range n.connection.waiters {
		if whom(w) {
			w.hint()
		}
	}
}

// leave removes a waiter. With the last one the connection ends.
func (n *workListener) leave(w *workWaiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := w.connection
	if _, there := k.waiters[w]; !there {
		return
	}
	delete(k.waiters, w)
	close(w.c)
	if len(k.waiters) == 0 {
		n.end(k)
	}
}

// broke ends all hints of a connection. Its waiters poll, or wait anew. A newer
// connection goes on.
func (n *workListener) broke(k *workConnection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range k.waiters {
		close(w.c)
	}
	k.waiters = nil
	n.end(k)
}

func (n *workListener) end(k *workConnection) {
	k.cancel()
	if n.connection == k {
		n.connection = nil
	}
}

// move gives up a connection that may lead to the wrong server. The waiters'
// channels are closed, and they wait anew.
func (n *workListener) move() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connection != nil {
		n.connection.cancel()
	}
}

func (n *workListener) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.connection != nil {
		n.connection.cancel()
	}
}
