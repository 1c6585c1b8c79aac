package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/wait"
)

// writer is the connection that changes records, with prepared statements. One
// goroutine uses it. Statements go to the driver's own connection, so that
// database/sql cannot replace it unnoticed. They are never interrupted, because
// the outcome of an interrupted commit would be unknown.
type writer struct {
	conn      *sql.Conn
	base      *base
	sideFiles sideFiles // that of the base, or, if it has none, of this connection

	begin, commit, rollback statement
	load, insert, update    statement
	touch                   statement
	data                    statement
	args                    [3]sqldriver.NamedValue
	row                     [2]sqldriver.Value
	packed                  []byte // buffer for the record that is being written
}

// statement is a prepared statement of the driver.
type statement interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

// newWriter takes a connection from the pool, sets it up for writing, whatever
// the pool's settings are, and prepares the statements.
func newWriter(ctx context.Context, b *base, o *Options) (*writer, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{conn: conn, base: b, sideFiles: b.sideFiles}
	if err := w.setUp(ctx, o); err != nil {
		w.discard()
		return nil, err
	}
	if w.sideFiles == nil {
		w.sideFiles = b.readSideFiles()
	}
	return w, nil
}

func (w *writer) setUp(ctx context.Context, o *Options) error {
	settings := strings.ReplaceAll(sqlWriter, "{wait}", strconv.FormatInt(o.LockWait.Milliseconds(), 10))
	if _, err := w.conn.ExecContext(ctx, settings); err != nil {
		return err
	}
	var synchronous int
	if err := w.conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return err
	}
	if synchronous < 2 {
		return explained(fmt.Sprintf("store %s: synchronous stays %d on the store's connection, and must be FULL (2)",
			w.base.name(), synchronous))
	}
	err := w.conn.Raw(func(raw any) error {
		dc, ok := raw.(interface {
			sqldriver.ConnPrepareContext
			sqldriver.ExecerContext
		})
		if !ok {
			return explained(fmt.Sprintf("store %s: the driver's connection is a %T; use modernc.org/sqlite",
				w.base.name(), raw))
		}
		for _, s := range []struct {
			into *statement
			text string
		}{
			{&w.begin, o.begin},
			{&w.commit, o.commit},
			{&w.rollback, sqlRollback},
			{&w.load, sqlLoad},
			{&w.insert, sqlInsert},
			{&w.update, sqlUpdate},
			{&w.touch, sqlTouch},
			{&w.data, sqlDataVersion},
		} {
			prepared, err := dc.PrepareContext(ctx, s.text)
			if err != nil {
				return err
			}
			if *s.into, ok = prepared.(statement); !ok {
				return explained(fmt.Sprintf("store %s: the driver's statements are %T; use modernc.org/sqlite",
					w.base.name(), prepared))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// From here on Store.enter waits for the lock, in smaller steps than
	// SQLite.
	_, err = w.conn.ExecContext(ctx, "PRAGMA busy_timeout = 0")
	return err
}

// emptyLog copies the whole log into the database after a failed flush. The
// system may have marked the unwritten pages of the log as clean. Later flushes
// would then succeed, and a power cut would still lose those pages, and with
// them everything after them in the log.
func (w *writer) emptyLog(ctx context.Context, wait time.Duration) error {
	done, err := emptyLog(ctx, w.conn, wait)
	if err == nil && !done {
		return fmt.Errorf("store %s: %w: a flush of its log has failed, "+
			"and the log cannot be emptied while others use it: %s", w.base.name(), ErrBusy, w.base.readers())
	}
	return err
}

// emptyLog copies the whole log into the database, and tries again for some
// time while readers still need the log. It reports whether it was done. The
// busy timeout of the connection must be 0, because SQLite would wait for the
// readers with the write lock held.
func emptyLog(ctx context.Context, conn *sql.Conn, wait time.Duration) (done bool, err error) {
	began := time.Now()
	for try := 0; ; try++ {
		var busy, pages, copied int
		if err := conn.QueryRowContext(ctx, sqlEmptyLog).Scan(&busy, &pages, &copied); err != nil || busy == 0 {
			return err == nil, err
		}
		if time.Since(began) > wait || !pause(ctx.Done(), try) {
			return false, nil
		}
	}
}

// discard closes the connection instead of giving it back to the pool, with its
// settings and any open transaction.
func (w *writer) discard() {
	_ = w.conn.Raw(func(any) error {
		for _, s := range []statement{w.begin, w.commit, w.rollback, w.load, w.insert, w.update, w.touch, w.data} {
			if s != nil {
				_ = s.Close()
			}
		}
		return sqldriver.ErrBadConn
	})
	_ = w.conn.Close()
}

// exec runs a statement to its end.
func (w *writer) exec(s statement, args ...sqldriver.Value) error {
	for i, a := range args {
		w.args[i] = sqldriver.NamedValue{Ordinal: i + 1, Value: a}
	}
	_, err := s.ExecContext(context.Background(), w.args[:len(args)])
	return err
}

// find reads a key's row. packed is nil if there is none. Call it within Raw.
func (w *writer) find(key string) (id int64, packed []byte, err error) {
	w.args[0] = sqldriver.NamedValue{Ordinal: 1, Value: key}
	rows, err := w.load.QueryContext(context.Background(), w.args[:1])
	if err != nil {
		return 0, nil, err
	}
	err = rows.Next(w.row[:])
	if closed := rows.Close(); err == nil {
		err = closed
	}
	switch {
	case errors.Is(err, io.EOF):
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	}
	id, ok := w.row[0].(int64)
	if packed, _ = w.row[1].([]byte); !ok || packed == nil {
		packed = []byte{} // a damaged row, not a missing one
	}
	return id, packed, nil
}

// enter begins a transaction for a task and returns when it has the write lock.
// It gives up after LockWait, when the task's context ends, or when the store
// is closed. The time that the task has spent in the queue counts, as far as
// earlier tasks waited for the same lock. So of many callers the last is told
// as soon as the first.
func (s *Store) enter(w *writer, t *task) error {
	var since time.Time
	for try := 0; ; try++ {
		err := w.exec(w.begin)
		if err == nil {
			s.blockedSince = time.Time{}
			return nil
		}
		if !isBusy(err) {
			return err
		}
		if since.IsZero() {
			if s.blockedSince.IsZero() {
				s.blockedSince = time.Now()
			}
			if since = t.from; s.blockedSince.After(since) {
				since = s.blockedSince
			}
		}
		if wait := s.options.LockWait; time.Since(since) >= wait {
			return fmt.Errorf("store %s: %w for more than %s: %s: %w",
				w.base.name(), ErrBusy, wait, w.base.holder(), err)
		}
		if t.ctx.Err() != nil {
			return fmt.Errorf("%w; store %s: %w: %s%w", wait.Ended(t.ctx),
				w.base.name(), ErrBusy, w.base.holder(), errGaveUp)
		}
		select {
		case <-s.closing:
			return ErrClosed
		default:
		}
		pause(t.ctx.Done(), try)
	}
}

// version returns a number that differs after another connection has changed
// the file. Call it within Raw.
func (w *writer) version() (int64, error) {
	rows, err := w.data.QueryContext(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	err = rows.Next(w.row[:1])
	if closed := rows.Close(); err == nil {
		err = closed
	}
	version, ok := w.row[0].(int64)
	if err == nil && !ok {
		err = fmt.Errorf("the version of the data is %v", w.row[0])
	}
	return version, err
}

// errGaveUp marks the error of a task whose context ended before it had the
// write lock. It has no text, because it is joined to an error that has one.
var errGaveUp = errors.New("")

// pause waits between two tries: a short, growing and random time, so that
// contenders do not collide again and again. It reports false if done was
// closed meanwhile.
func pause(done <-chan struct{}, try int) bool {
	most := min(250*time.Microsecond<<min(try, 6), 5*time.Millisecond)
	t := time.NewTimer(most/2 + rand.N(most/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
