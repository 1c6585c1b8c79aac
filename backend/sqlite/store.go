package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/sweep"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Options of a store. The zero value is good.
type Options struct {
	// Retention is how long a record outlives its last use; default
	// [store.DefaultRetention].
	Retention time.Duration
	// LockWait is how long a request waits for a transaction of another process
	// before it fails with [ErrBusy]; default 2 s.
	LockWait time.Duration
	// SweepEvery is after how many grants the store does a step of housekeeping
	// in the background; default 1024. If it is negative, the store does none.
	SweepEvery int
	// AllowNetwork allows a file on a network or FUSE mount. Set it only if no
	// more than one machine ever opens the file.
	AllowNetwork bool

	now           func() time.Time // default time.Now
	begin, commit string           // tests replace these statements
	between       func()           // tests set it: called between reading and writing
}

// withDefaults returns a copy with all defaults filled in.
func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Retention <= 0 {
		d.Retention = store.DefaultRetention
	}
	if d.LockWait < time.Millisecond {
		d.LockWait = 2 * time.Second
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.begin == "" {
		d.begin, d.commit = sqlBegin, sqlCommit
	}
	return d
}

// Store keeps leases in a SQLite database. Its methods are safe for concurrent
// use, by any number of processes and handles on the same file.
type Store struct {
	options Options
	open    func(ctx context.Context) (*base, error)

	opening chan struct{} // holds a token while a goroutine opens the database
	mu      sync.Mutex    // protects base, queue and working, and the start of background goroutines
	base    *base         // nil until it is open, and after its file was moved

	queue   []*task                   // for the next transactions
	working bool                      // the goroutine of work has been started
	asked   chan struct{}             // holds a token if the queue may have new tasks
	inside  atomic.Pointer[time.Time] // when the present transaction began; nil if there is none

	// Only the goroutine of work uses these.
	writer       *writer
	transaction  transaction
	tasks        []*task
	blockedSince time.Time // since when others have had the lock; zero if they have not
	flushFailed  bool      // a flush of the log has failed: see emptyLog

	closing chan struct{} // closed by Close
	once    sync.Once
	ended   sync.WaitGroup
	watch   *watches
	sweeper sweep.Runner
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
)

// Open opens the store in a file. It makes a missing file, with permissions for
// the user alone. Its error matches fence.ErrInvalid if the file or its folder
// cannot keep a store's promises, or if the file is the database of another
// application. o may be nil.
func Open(ctx context.Context, path string, o *Options) (*Store, error) {
	if o != nil && o.Retention < 0 {
		return nil, fmt.Errorf("%w retention %s: it must not be negative", fence.ErrInvalid, o.Retention)
	}
	path, err := cleanPath(path)
	if err != nil {
		return nil, err
	}
	s := newStore(o)
	s.open = func(ctx context.Context) (*base, error) { return openBase(ctx, path, &s.options) }
	if _, err := s.database(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// New makes a store in the caller's own database, beside its other tables. The
// caller opens the database with modernc.org/sqlite, in WAL mode, and closes it
// after the store. o may be nil.
//
// The store keeps one connection for itself and sets synchronous = FULL on it.
// It keeps a second one while a caller waits for a key or keeps a lease. It
// reads on any connection. It sends nothing before its first call.
func New(db *sql.DB, o *Options) *Store {
	s := newStore(o)
	var first *base // protected by s.opening
	s.open = func(ctx context.Context) (b *base, err error) {
		if first != nil {
			return first.adoptAgain(ctx, &s.options)
		}
		if b, err = adoptBase(ctx, db, &s.options); err == nil {
			first = b
		}
		return b, err
	}
	return s
}

func newStore(o *Options) *Store {
	s := &Store{
		options: o.withDefaults(),
		opening: make(chan struct{}, 1),
		asked:   make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	s.sweeper.Every, s.sweeper.Longest = s.options.SweepEvery, 30*time.Second
	s.sweeper.Do = func(ctx context.Context) { _ = s.sweepSomewhere(ctx) }
	s.watch = newWatches(s)
	return s
}

// database returns the open database. If its file was moved or removed,
// database closes it and opens the file that is at the path now.
func (s *Store) database(ctx context.Context) (*base, error) {
	s.mu.Lock()
	b := s.base
	s.mu.Unlock()
	if b != nil && !b.moved() {
		return b, s.checkSideFiles(b, b.sideFiles)
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, wait.Ended(ctx)
	case <-s.closing:
		return nil, ErrClosed
	}
	s.mu.Lock()
	b = s.base
	s.mu.Unlock()
	if b != nil && !b.moved() {
		return b, s.checkSideFiles(b, b.sideFiles) // another goroutine has opened it
	}
	s.forget(b)
	b, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return nil, errors.Join(ErrClosed, b.close())
	default:
	}
	s.base = b
	return b, nil
}

// forget closes a database whose file was moved or removed. b may be nil.
func (s *Store) forget(b *base) {
	s.mu.Lock()
	mine := b != nil && s.base == b
	if mine {
		s.base = nil
	}
	s.mu.Unlock()
	if mine {
		_ = b.close() // without the lock: it may take a while
	}
}

// background runs do in a goroutine that Close waits for. It reports false, and
// runs nothing, if Close has begun.
func (s *Store) background(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return false
	default:
		s.ended.Go(do)
		return true
	}
}

// untilClosed returns a context for background work. It ends after limit, or
// when the store is closed.
func (s *Store) untilClosed(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// usable returns an error if ctx has ended or the store is closed. The error
// matches [store.ErrUnknown].
func (s *Store) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return store.Unknown(wait.Ended(ctx))
	}
	select {
	case <-s.closing:
		return store.Unknown(ErrClosed)
	default:
		return nil
	}
}

// Now returns this machine's time. All users of the file are on this machine.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return tenure.Time(s.options.now()), nil
}

// Close ends all background work, and closes the database if the store has
// opened it. It releases no lease.
func (s *Store) Close() error {
	var failed error
	s.once.Do(func() {
		s.mu.Lock()
		close(s.closing)
		s.mu.Unlock()
		s.sweeper.Close()
		ctx, cancel := context.WithTimeout(context.Background(), beginWait)
		defer cancel()
		s.watch.hub.End(ctx)
		s.ended.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.base == nil {
			return
		}
		s.base.looked.Store(0) // sideFilesReplaced must look now
		if s.base.sideFilesReplaced(s.base.sideFiles) {
			failed = s.base.abandon()
			return
		}
		failed = s.base.close()
	})
	return failed
}
