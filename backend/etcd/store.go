package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Options of a store. The zero value is good.
type Options struct {
	// Prefix is what the names of all its keys begin with; default [DefaultPrefix]. Stores with different prefixes share nothing.
	Prefix string
	// Retention is how long a record outlives its last use; default [store.DefaultRetention]. Use the same in all clients of one store.
	Retention time.Duration
	// SweepEvery makes one in so many grants begin a sweep in the background; default 1024, negative: never.
	SweepEvery int
}

// Store keeps leases in etcd. Its methods are safe for concurrent use.
type Store struct {
	client    *clientv3.Client
	owned     bool // opened from a URL, and closed with the store
	id        identity
	names     naming
	retention time.Duration
	sweeping  sweeping

	clock  func() time.Time // this machine's; another one only in tests,
	domain identity         // and then with a name of its own
	clocks clocks
	ages   ages

	mu                sync.Mutex
	cache             viewCache
	etcdLeases        map[int64]*etcdLease // by the seconds they last
	pages             map[uint32]*ownPage
	lastPage          uint32 // number of the newest page
	topics            map[string]*topic
	keepingQueueLease bool      // places in queues are being kept
	actWatch          *actWatch // of operators' acts; nil while nobody listens

	nestedLeft atomic.Int64 // batches that are not sent as one transaction
	revision   atomic.Int64 // revision of etcd that is known

	timeout      time.Duration   // of a call that somebody waits for; longer only in tests
	linger       time.Duration   // how long a watch stays open; longer only in tests
	queueTTL     time.Duration   // how long a place in a queue outlives its store; shorter only in tests
	maxBidAge    time.Duration   // how old a bid may be at the most; longer only in tests
	queuePolls   []time.Duration // when the queue of a key that goes around is looked at; never in tests that do it themselves
	idleInQueue  time.Duration   // how long it stays in a queue that nobody here waits in; longer only in tests
	extraSeconds int64           // seconds that etcd leases last longer than they have to; only in tests whose clock stands still while etcd's does not

	life     context.Context // of what goes on in the background
	end      context.CancelFunc
	done     sync.WaitGroup
	closed   atomic.Bool
	calls    atomic.Int64 // of Apply, under way
	closing  sync.Once
	closeErr error
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
	_ store.Pipelined = (*Store)(nil)
)

// New makes a store of a client, which stays the caller's: Close leaves it open. o may be nil.
func New(client *clientv3.Client, o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		client: client, id: newIdentity(), names: naming(o.Prefix), retention: o.Retention,
		clock: time.Now, domain: machineClock,
		etcdLeases: map[int64]*etcdLease{}, pages: map[uint32]*ownPage{}, topics: map[string]*topic{},
		timeout: requestTimeout, linger: linger, queueTTL: queueTTL, maxBidAge: maxBidAge, queuePolls: queuePolls, idleInQueue: idleInQueue,
	}
	if s.names == "" {
		s.names = DefaultPrefix
	}
	if s.retention <= 0 {
		s.retention = store.DefaultRetention
	}
	s.sweeping.every = o.SweepEvery
	if s.sweeping.every == 0 {
		s.sweeping.every = 1024
	}
	s.cache.init()
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// now is the store's clock, as records keep time.
func (s *Store) now() time.Time { return tenure.Time(s.clock()) }

// Pipelines says that a second batch is worth sending beside the first: see [store.Pipelined].
func (s *Store) Pipelines() bool { return true }

// Now is the clock of this machine: etcd has none that it tells. Deadlines that others have written are given on it, too.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}

// fork lets something go on in the background until Close, unless the store is closed.
func (s *Store) background(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return
	}
	s.done.Go(func() { f(s.life) })
}

// Close ends all watches, what goes on in the background, and the client if the store was opened from a URL. It releases no lease; etcd leases that nothing hangs on any
// more are given back.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.withdrawAll()
		s.mu.Lock()
		s.closed.Store(true)
		for _, p := range s.pages {
			p.stopAlarm()
		}
		s.mu.Unlock()
		s.end()
		s.done.Wait()
		s.closeTopics()
		if s.calls.Load() == 0 { // or one of them might just be granted a lease on them: then they expire
			s.revokeUnused()
		}
		if s.owned {
			s.closeErr = s.client.Close()
		}
	})
	return s.closeErr
}

// usable is the error of a call that need not be tried.
func (s *Store) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return store.Unknown(over(ctx))
	}
	if s.closed.Load() {
		return store.Unknown(ErrClosed)
	}
	return nil
}

// txn makes one transaction.
func (s *Store) txn(ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	before, sent := s.revision.Load(), time.Now()
	resp, err := commit(ctx, s.client, s.timeout, compares, then, otherwise)
	if err != nil {
		return nil, err
	}
	s.ages.note(sent, resp.Header.Revision)
	s.sawRevision(before, resp.Header.Revision)
	return resp, nil
}

// reached takes note of etcd's revision. One that is lower than what was known before the call says that etcd was set back to an earlier state: what is remembered of keys was never so there, and a record that is written anew may
// come to have the revision of another that is remembered.
func (s *Store) sawRevision(before, revision int64) {
	if revision < before {
		s.mu.Lock()
		s.cache.init()
		for _, t := range s.topics { // or all that is heard from now on would be old, and nothing is until etcd has come to where it was
			t.joinedAt, t.leftAt = 0, 0
			if t.restart != nil {
				t.restart()
			}
		}
		if s.actWatch != nil {
			s.actWatch.end() // it waits for a revision that is far ahead
		}
		for _, p := range s.pages {
			for _, m := range p.members {
				m.next = successors{} // nor did they wait there
			}
		}
		s.mu.Unlock()
		s.ages.forget()
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
