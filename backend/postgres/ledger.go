package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func init() {
	work.Register("postgres", openLedgerURL)
	work.Register("postgresql", openLedgerURL)
}

// LedgerOptions of a ledger. The zero value is good.
type LedgerOptions struct {
	// Schema holds what the ledger keeps; default [DefaultSchema]. Ledgers in
	// different schemas share nothing.
	Schema string
	// LockWait is how long a request waits for a row that another transaction
	// has locked. After that its outcome is unknown. The default is 2 s.
	LockWait time.Duration
	// Log receives one warning if the server cannot notify, so that waiting
	// workers must poll. It also receives a warning for each claimed item whose
	// row is damaged. The default is [slog.Default].
	Log *slog.Logger

	now func() time.Time // tests replace the server's clock
}

// Ledger keeps items of work in PostgreSQL. Its methods are safe for concurrent
// use, by any number of processes and handles.
type Ledger struct {
	*setup
	lockWait time.Duration
	now      func() time.Time
	ownsPool bool // Close closes the pool
	listener workListener

	made    atomic.Bool // the schema is there
	closing sync.Once
	closed  atomic.Bool
}

var (
	_ work.Ledger   = (*Ledger)(nil)
	_ work.Waker    = (*Ledger)(nil)
	_ work.Surveyor = (*Ledger)(nil)
)

// NewLedger makes a ledger on the caller's pool. The caller still closes the
// pool. NewLedger sends nothing: the first call does. o may be nil. It panics
// if the schema's name would need quotes.
func NewLedger(pool *pgxpool.Pool, o *LedgerOptions) *Ledger {
	if o == nil {
		o = &LedgerOptions{}
	}
	schema := o.Schema
	if schema == "" {
		schema = DefaultSchema
	}
	if err := checkSchema(schema); err != nil {
		panic(err)
	}
	l := &Ledger{setup: newSetup(pool, newQueries(schema)), lockWait: o.LockWait, now: o.now}
	if l.lockWait < time.Millisecond {
		l.lockWait = 2 * time.Second
	}
	l.listener.log = o.Log
	return l
}

// openLedgerURL opens the ledger that a store's URL names.
func openLedgerURL(ctx context.Context, u *url.URL) (work.Ledger, error) {
	l, err := OpenLedger(ctx, u.String())
	if err != nil {
		return nil, err
	}
	return l, nil
}

// OpenLedger opens the ledger in the database that a URL names, with a pool of
// its own. It takes the URLs that [Open] takes. Its errors do not repeat the
// URL's password.
func OpenLedger(ctx context.Context, raw string) (*Ledger, error) {
	a, err := parse("ledger", raw)
	if err != nil {
		return nil, err
	}
	if a.fragment != "" {
		return nil, a.bad("it has a fragment, which names a guard and no ledger")
	}
	pool, err := a.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", store.Redact(raw), err)
	}
	l := NewLedger(pool, &LedgerOptions{Schema: a.schema, LockWait: a.lockWait})
	l.ownsPool = true
	return l, nil
}

// Close ends the work in the background. It closes the pool if the ledger was
// opened by its URL. It gives no item back.
func (l *Ledger) Close() error {
	l.closing.Do(func() {
		l.closed.Store(true)
		l.listener.close()
		if l.ownsPool {
			l.pool.Close()
		}
	})
	return nil
}

var errLedgerClosed = errors.New("the ledger is closed; open it again")

func (l *Ledger) logger() *slog.Logger {
	if l.listener.log != nil {
		return l.listener.log
	}
	return slog.Default()
}

// usable returns the error of a call that cannot succeed: ctx has ended, or the
// ledger is closed.
func (l *Ledger) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return store.Unknown(wait.Ended(ctx))
	}
	if l.closed.Load() {
		return store.Unknown(errLedgerClosed)
	}
	return nil
}

// setAt returns the time that replaces the server's clock, or nil.
func (l *Ledger) setAt() *int64 {
	if l.now == nil {
		return nil
	}
	us := l.now().UnixMicro()
	return &us
}

// send runs do, and repeats it if the server reports a serialization failure. A
// statement that failed so has changed nothing. It happens where the role's
// default isolation level is not READ COMMITTED.
func (l *Ledger) send(ctx context.Context, do func(context.Context) error) (err error) {
	for range attempts {
		if err = l.run(ctx, do); !hasCode(err, serialization) {
			break
		}
	}
	if hasCode(err, readOnly) { // this server has become a standby
		if l.ownsPool {
			l.pool.Reset() // new connections go where target_session_attrs leads
		}
		l.listener.move() // waiters must listen at the new primary
	}
	return err
}

// within runs do in a transaction of the ledger's own. The transaction waits
// for no lock longer than wait.
func (l *Ledger) within(ctx context.Context, wait time.Duration, do func(*ledgerTx) error) error {
	return l.send(ctx, func(ctx context.Context) error {
		return pgxDatabase{l.pool}.within(ctx, func(s session) error {
			var was string
			args := []any{fmt.Sprint(min(max(wait.Milliseconds(), 1), 1<<30)), "30000"}
			if err := s.row(ctx, l.sql.limit, args, &was, new(string), new(string)); err != nil {
				return err
			}
			return do(&ledgerTx{ledger: l, session: s})
		})
	})
}

// In returns the operations on items inside the caller's own transaction. They
// take effect when it commits. Rows that they have locked stay locked until it
// ends.
func (l *Ledger) In(tx pgx.Tx) work.Operations { return &ledgerTx{ledger: l, session: pgxSession{tx}} }

// InSQL is [Ledger.In] for a transaction of database/sql on the same database,
// with any driver.
func (l *Ledger) InSQL(tx *sql.Tx) work.Operations {
	return &ledgerTx{ledger: l, session: sqlSession{tx}}
}

// call sends one statement, in a transaction of its own. If a stricter default
// level makes that fail because of another transaction, call sends the
// statement again at READ COMMITTED.
func (l *Ledger) call(ctx context.Context, text string, args ...any) (rows []string, err error) {
	err = l.send(ctx, func(ctx context.Context) error {
		rows, err = poolTexts(ctx, l.pool, text, args...)
		if hasCode(err, serialization) {
			err = pgxDatabase{l.pool}.within(ctx, func(s session) error {
				rows, err = s.texts(ctx, text, args...)
				return err
			})
		}
		return err
	})
	return rows, err
}

// ready makes the schema before a statement in the caller's transaction needs
// it: a missing one would fail the transaction. It looks in that same
// transaction, because the pool may have no other connection.
func (l *Ledger) ready(ctx context.Context, s session) error {
	if l.made.Load() {
		return nil
	}
	var there bool
	if err := s.row(ctx, l.sql.workThere, nil, &there); err != nil {
		return err
	}
	if !there {
		return l.make(ctx)
	}
	l.made.Store(true)
	return nil
}

// make makes the schema if it is missing.
func (l *Ledger) make(ctx context.Context) error {
	if l.made.Load() {
		return nil
	}
	if _, err := l.call(ctx, l.sql.workApply, nil, 1000, nil, nil, nil); err != nil {
		return err
	}
	l.made.Store(true)
	return nil
}

// Now returns the server's time.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	if err := l.usable(ctx); err != nil {
		return time.Time{}, err
	}
	if l.now != nil {
		return tenure.Time(l.now()), nil
	}
	var us int64
	err := l.send(ctx, func(ctx context.Context) error { return l.pool.QueryRow(ctx, l.sql.now).Scan(&us) })
	if err != nil {
		return time.Time{}, store.Unknown(explainWork(ctx, err))
	}
	return fromMicro(us), nil
}
