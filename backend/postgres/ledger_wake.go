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

	"github.com/croft-dev/croft/work"
)

// echoes are how long after a notification its hint is repeated: a change that was under way when the notifier looked, and was committed after the woken worker did, has told nobody.
var echoes = []time.Duration{25 * time.Millisecond, 250 * time.Millisecond}

// ear is the one connection of a ledger that listens, while somebody waits.
type ear struct {
	log  *slog.Logger
	told sync.Once

	mu     sync.Mutex
	closed bool
	waits  map[*wait]struct{}
	stop   context.CancelFunc // of the connection, if there is one
}

// wait is somebody who wants hints.
type wait struct {
	queues []string // '' among them for the outbox
	c      chan struct{}
}

func (w *wait) hint() {
	select {
	case w.c <- struct{}{}:
	default: // one is waiting to be read already
	}
}

// Wake gives hints, over one connection for all who wait at this handle. Only a queue that a claim of this handle has found empty is told of; see [Ledger.Claim].
func (l *Ledger) Wake(ctx context.Context, wanted work.Wanted) (<-chan struct{}, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	if err := l.ready(ctx); err != nil {
		return nil, explain(ctx, err)
	}
	w := &wait{queues: slices.Clone(wanted.Queues), c: make(chan struct{}, 1)}
	if wanted.Effects {
		w.queues = append(w.queues, "")
	}
	if err := l.ear.join(ctx, l, w); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			l.ear.told.Do(func() {
				log := l.ear.log
				if log == nil {
					log = slog.Default()
				}
				log.Warn("croft: PostgreSQL cannot wake workers over this connection; they poll instead", "why", err,
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
	w.hint() // what was added before
	return w.c, nil
}

// listens reports whether somebody here waits for one of the queues.
func (e *ear) listens(queues []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waits {
		for _, q := range w.queues {
			if slices.Contains(queues, q) {
				return true
			}
		}
	}
	return false
}

// join adds somebody, and opens the connection for the first.
func (e *ear) join(ctx context.Context, l *Ledger, w *wait) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errLedgerClosed
	}
	if e.stop == nil {
		conn, err := pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig.Copy())
		if err != nil {
			return explain(ctx, err)
		}
		if err := hears(ctx, conn, l.sql); err != nil {
			_ = conn.Close(ctx)
			return err
		}
		life, stop := context.WithCancel(context.Background())
		e.stop = stop
		go e.listen(life, conn)
	}
	if e.waits == nil {
		e.waits = map[*wait]struct{}{}
	}
	e.waits[w] = struct{}{}
	return nil
}

// hears makes sure that notifications arrive over the connection: through some poolers they do not.
func hears(ctx context.Context, conn *pgx.Conn, sql *statements) error {
	cannot := func(err error) error {
		return fmt.Errorf("%w: the server refuses LISTEN or its notifications do not arrive: %w", errors.ErrUnsupported, err)
	}
	if _, err := conn.Exec(ctx, sql.workListen); err != nil {
		return cannot(err)
	}
	const probe = "\x01probe"
	if _, err := conn.Exec(ctx, sql.workNotify, list([]string{probe})); err != nil {
		return cannot(err)
	}
	bounded, cancel := context.WithTimeout(ctx, longestProbe)
	defer cancel()
	for {
		note, err := conn.WaitForNotification(bounded)
		if err != nil {
			return cannot(err)
		}
		if note.Payload == probe {
			return nil
		}
	}
}

// listen hands on what arrives until the connection breaks; then everybody who waits is told so by the end of their channel.
func (e *ear) listen(life context.Context, conn *pgx.Conn) {
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	for {
		bounded, stop := context.WithTimeout(life, refresh)
		note, err := conn.WaitForNotification(bounded)
		stop()
		switch {
		case err == nil:
			e.hear(note.Payload)
			continue
		case life.Err() == nil && !conn.IsClosed():
			// Nothing has come for a while: is the line alive? Everybody looks again, in case it was not.
			bounded, stop := context.WithTimeout(life, longestProbe)
			err = conn.Ping(bounded)
			stop()
			if err == nil {
				e.hearAll()
				continue
			}
		}
		e.broke()
		return
	}
}

// hear gives a hint to everybody who waits for the queue, now and a little later.
func (e *ear) hear(queue string) {
	e.hint(queue)
	for _, d := range echoes {
		time.AfterFunc(d, func() { e.hint(queue) })
	}
}

func (e *ear) hint(queue string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waits {
		if slices.Contains(w.queues, queue) {
			w.hint()
		}
	}
}

func (e *ear) hearAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waits {
		w.hint()
	}
}

// leave lets go of somebody, and of the connection with the last.
func (e *ear) leave(w *wait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, there := e.waits[w]; !there {
		return
	}
	delete(e.waits, w)
	close(w.c)
	if len(e.waits) == 0 && e.stop != nil {
		e.stop()
		e.stop = nil
	}
}

// broke ends all hints: their readers poll, or wait anew.
func (e *ear) broke() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waits {
		close(w.c)
	}
	e.waits, e.stop = nil, nil
}

func (e *ear) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.stop != nil {
		e.stop()
	}
}
