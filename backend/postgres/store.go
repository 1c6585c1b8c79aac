package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/internal/sweep"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// Options of a store. The zero value is good.
type Options struct {
	// Schema holds what the store keeps; default [DefaultSchema]. Stores in
	// different schemas share nothing.
	Schema string
	// Retention is how long a record outlives its last use; default
	// [store.DefaultRetention].
	Retention time.Duration
	// LockWait is how long a request waits for a row that another transaction
	// has locked. After that its outcome is unknown. The default is 2 s.
	LockWait time.Duration
	// SweepEvery is how many grants it takes, on average, to begin a step of
	// housekeeping in the background. The default is 1024. Negative means
	// never.
	SweepEvery int
	// Log receives one warning if the server cannot notify. Then waiters poll,
	// and holders learn of operators' acts by renewing. The default is
	// [slog.Default].
	Log *slog.Logger

	now func() time.Time // tests replace the server's clock
}

// Store keeps leases in PostgreSQL. Its methods are safe for concurrent use, by
// any number of processes and handles.
type Store struct {
	*setup
	retention time.Duration
	lockWait  time.Duration
	now       func() time.Time
	ownsPool  bool // Close closes the pool
	sweeper   sweep.Runner
	listener  *listener
	hub       *turns.Hub

	closing sync.Once
	closed  atomic.Bool
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
)

// New makes a store on the caller's pool. The caller still closes the pool. New
// sends nothing: the first call does. o may be nil. New panics if the schema's
// name would need quotes.
func New(pool *pgxpool.Pool, o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	schema := o.Schema
	if schema == "" {
		schema = DefaultSchema
	}
	if err := checkSchema(schema); err != nil {
		panic(err)
	}
	s := &Store{
		setup:     newSetup(pool, newQueries(schema)),
		retention: o.Retention,
		lockWait:  o.LockWait,
		now:       o.now,
	}
	if s.retention <= 0 {
		s.retention = store.DefaultRetention
	}
	if s.lockWait < time.Millisecond {
		s.lockWait = 2 * time.Second
	}
	s.sweeper.Every, s.sweeper.Longest = o.SweepEvery, 30*time.Second
	s.sweeper.Do = func(ctx context.Context) { _, _, _, _ = s.sweepFrom(ctx, nil) }
	log := o.Log
	if log == nil {
		log = slog.Default()
	}
	s.listener = newListener(s, log)
	s.hub = turns.NewHub(s.listener)
	s.hub.Closed = ErrClosed
	return s
}

// setAt returns the time that replaces the server's clock, or nil.
func (s *Store) setAt() *int64 {
	if s.now == nil {
		return nil
	}
	us := s.now().UnixMicro()
	return &us
}

// waitMillis is LockWait in milliseconds.
func (s *Store) waitMillis() int32 { return int32(min(s.lockWait.Milliseconds(), 1<<30)) }

// usable returns the error of a call that cannot succeed: ctx has ended, or the
// store is closed.
func (s *Store) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return store.Unknown(wait.Ended(ctx))
	}
	if s.closed.Load() {
		return store.Unknown(ErrClosed)
	}
	return nil
}

// Close ends the work in the background. It closes the pool if the store was
// opened by its URL. It releases no lease.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.sweeper.Close()
		s.listener.close()
		if s.ownsPool {
			s.pool.Close()
		}
	})
	return nil
}
