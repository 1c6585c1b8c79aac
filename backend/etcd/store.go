package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/sweep"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Options are the choices in making a store. The zero value means all defaults.
type Options struct {
	// Prefix begins the names of all etcd keys of the store; default
	// [DefaultPrefix]. Stores with different prefixes share nothing.
	Prefix string
	// Retention is how long a record outlives its last use; default
	// [store.DefaultRetention]. Use the same in all clients of one store.
	Retention time.Duration
	// SweepEvery is how many grants begin one sweep in the background, on
	// average; default 1024. A negative number means never.
	SweepEvery int
}

// Store keeps leases in etcd. Its methods are safe for concurrent use.
type Store struct {
	client    *clientv3.Client
	owned     bool // opened from a URL: Close closes the client
	id        identity
	names     naming
	retention time.Duration
	sweeping  sweep.Runner
	hub       *turns.Hub
	listener  *listener

	clock  func() time.Time // this machine's clock; tests may replace it,
	domain identity         // and then give it a name of its own
	clocks clocks

	// mu protects the fields down to alarmAt, and all fields of other types
	// that say so.
	mu         sync.Mutex
	held       map[string]*view     // the newest views of keys that this store carries
	views      map[string]*view     // and of some others
	etcdLeases map[int64]*etcdLease // by the seconds they last
	alarm      *time.Timer          // runs until the first deadline of a held key
	alarmAt    time.Time

	revision atomic.Int64 // the highest revision of etcd that was seen

	// These are constants, except in tests.
	timeout  time.Duration // of one call that a caller waits for
	queueTTL time.Duration // how long a queue entry outlives its store
	// extraSeconds prolongs etcd leases in tests whose clock stands still,
	// because etcd's clock does not.
	extraSeconds int64

	life     context.Context // cancelled by Close: for background work
	end      context.CancelFunc
	done     sync.WaitGroup // counts the goroutines that Close waits for
	closed   atomic.Bool
	calls    atomic.Int64 // calls of Apply under way
	closing  sync.Once
	closeErr error
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
)

// New makes a store on a client. The client stays the caller's: Close leaves it
// open. o may be nil.
func New(client *clientv3.Client, o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		client: client, id: newIdentity(), names: naming(o.Prefix), retention: o.Retention,
		clock: time.Now, domain: machineClock,
		views: map[string]*view{}, held: map[string]*view{}, etcdLeases: map[int64]*etcdLease{},
		timeout: requestTimeout, queueTTL: queueTTL,
	}
	if s.names == "" {
		s.names = DefaultPrefix
	}
	if s.retention <= 0 {
		s.retention = store.DefaultRetention
	}
	s.sweeping.Every = o.SweepEvery
	s.sweeping.Do = func(ctx context.Context) { _, _ = s.Sweep(ctx) }
	s.life, s.end = context.WithCancel(context.Background())
	s.listener = &listener{s: s, watches: map[string]*watch{}}
	s.hub = turns.NewHub(s.listener)
	s.hub.Closed = ErrClosed
	return s
}

// now returns the store's time, rounded as records keep it.
func (s *Store) now() time.Time { return tenure.Time(s.clock()) }

// Now returns this machine's time, because etcd tells none. Deadlines that
// other stores wrote are given on this clock, too.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}

// background runs f on a goroutine that Close waits for. f's context ends with
// the store. If the store is closed, background does nothing.
func (s *Store) background(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.Load() {
		s.done.Go(func() { f(s.life) })
	}
}

// Close ends all watches and background work, and the client if the store was
// opened from a URL. It releases no lease. It revokes the etcd leases that
// carry nothing.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed.Store(true)
		s.stopAlarm()
		s.mu.Unlock()
		s.sweeping.Close()
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		s.hub.End(ctx)
		s.end()
		s.done.Wait()
		// A call of Apply under way may still be granted a lease on them. Then
		// they expire by themselves.
		if s.calls.Load() == 0 {
			s.revokeUnused()
		}
		if s.owned {
			s.closeErr = s.client.Close()
		}
	})
	return s.closeErr
}

// usable returns an error if a call need not be tried: ctx has ended or the
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

// txn makes one transaction and notes the revision of the answer.
func (s *Store) txn(
	ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op,
) (*clientv3.TxnResponse, error) {
	before := s.revision.Load()
	resp, err := commit(ctx, s.client, s.timeout, compares, then, otherwise)
	if err != nil {
		return nil, err
	}
	s.sawRevision(before, resp.Header.Revision)
	return resp, nil
}

// sawRevision notes etcd's revision. before is the highest one known before
// the call. A lower one means that etcd was restored from a backup. Then the
// cache is wrong, and a new record may even get the revision of a cached one.
// The watches wait for a revision that is far ahead.
func (s *Store) sawRevision(before, revision int64) {
	if revision < before {
		s.mu.Lock()
		clear(s.views)
		for key, v := range s.held { // their deadlines still have to be written
			s.held[key] = v.unsure()
		}
		for _, a := range s.etcdLeases {
			a.doubtful = true
		}
		s.mu.Unlock()
		s.listener.restart()
		s.clocks.forget()
		s.revision.CompareAndSwap(before, revision)
		return
	}
	for {
		known := s.revision.Load()
		if revision <= known || s.revision.CompareAndSwap(known, revision) {
			return
		}
	}
}
