package etcd

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
)

// queueTTL is how long a queue entry outlives its store. The hub enters a queue
// again after eight seconds.
const queueTTL = 13 * time.Second

// youAreNext is the value of the entry of the second store in a queue, after
// the first was offered the key.
const youAreNext = "next"

// acts is the topic of operators' acts. It is no key.
const acts = ""

// Watch returns a channel that receives when it is this store's turn to have
// the key. If it is another store's turn and that store does not take the key,
// the channel receives a moment later: see package internal/turns.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.hub.Watch(ctx, key)
}

// Acts returns a channel of the keys on which operators act. The transaction
// that carries out an act also puts a notice: its value is the key. All
// listeners share one watch of the notices.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.hub.Listen(ctx, acts)
}

// listener is the driver of a store's hub: see package internal/turns. A queue
// entry is an etcd key on an etcd lease. etcd orders the entries by their
// create_revision. For each key that callers wait for, the listener watches
// this store's own entry.
type listener struct {
	s       *Store
	mu      sync.Mutex
	watches map[string]*watch
}

// watch is one watch of etcd. The listener's mutex protects it.
type watch struct {
	end     context.CancelFunc
	restart context.CancelFunc
	left    int64 // the revision at which this store left the queue last
}

// Subscribe begins to watch a key, or the notices of acts. It waits until etcd
// has confirmed that.
func (l *listener) Subscribe(ctx context.Context, key string) error {
	life, end := context.WithCancel(l.s.life)
	w := &watch{end: end}
	l.mu.Lock()
	l.watches[key] = w
	l.mu.Unlock()
	began := make(chan error, 1)
	l.s.background(func(context.Context) { l.run(life, key, w, began) })
	// The first waiter may leave while others stay, so ctx does not matter.
	late := time.NewTimer(2 * requestTimeout)
	defer late.Stop()
	var err error
	select {
	case err = <-began:
	case <-late.C:
		err = context.DeadlineExceeded
	case <-l.s.life.Done():
		err = turns.ErrEnded
	}
	if err != nil {
		l.Unsubscribe(key)
		return explain(context.Background(), err)
	}
	return nil
}

// Unsubscribe ends a watch.
func (l *listener) Unsubscribe(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watches[key]; w != nil {
		w.end()
		delete(l.watches, key)
	}
}

// restart begins all watches anew.
func (l *listener) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.watches {
		if w.left = 0; w.restart != nil {
			w.restart()
		}
	}
}

// run watches until ctx ends. etcd's client resumes a watch on another member
// by itself. A lost leader, a compaction or a restore ends it. Then run begins
// another, and the hub wakes all waiters, because they may have missed
// something. Listeners for acts begin again themselves.
func (l *listener) run(ctx context.Context, key string, w *watch, began chan<- error) {
	name, options := l.s.names.entry(key, l.s.id), []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if key == acts {
		name, options = l.s.names.notices(), append(options, clientv3.WithPrefix(), clientv3.WithFilterDelete())
		// etcd checks a watch by the login with which its stream was opened.
		// This watch stays open for long. So it has a stream of its own: on a
		// shared one, etcd would refuse waiters' watches when that login has
		// lapsed.
		ctx = metadata.AppendToOutgoingContext(ctx, "croft-acts", l.s.id.String())
	}
	for first := true; ctx.Err() == nil; first = false {
		watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		l.mu.Lock()
		w.restart = cancel
		l.mu.Unlock()
		for resp := range l.s.client.Watch(watching, name, options...) {
			switch err := resp.Err(); {
			case err != nil && first:
				began <- err // there is room for it
				cancel()
				return
			case err == nil && resp.Created:
				l.s.hub.Opened(key)
				if first {
					began <- nil
				}
				first = false
			}
			for _, e := range resp.Events {
				l.hear(key, e)
			}
		}
		cancel()
		if key == acts {
			l.s.hub.Lose(key)
			return
		}
		_ = clock.Sleep(ctx, turns.Grace+rand.N(turns.Grace))
	}
}

// hear handles an event. Any user with write permission may have caused it.
func (l *listener) hear(key string, e *clientv3.Event) {
	s := l.s
	if key == acts {
		if v := e.Kv.Value; len(v) <= fence.MaxKey && fence.CheckKey(string(v)) == nil {
			s.hub.Acted(acts, string(v))
		}
		return
	}
	l.mu.Lock()
	w := l.watches[key]
	own := w == nil || e.Kv.ModRevision <= w.left
	l.mu.Unlock()
	switch {
	case own: // it took the key, or stepped out
	case e.Type == clientv3.EventTypePut && len(e.Kv.Value) == 0: // it has entered
	case e.Type == clientv3.EventTypePut && string(e.Kv.Value) == youAreNext:
		s.hub.Freed(key, false)
	case e.Type == clientv3.EventTypePut:
		v := &view{asOf: e.Kv.ModRevision}
		if s.addRecord(v, key, e.Kv) == nil && !carried(&v.stored.rec) {
			s.mu.Lock()
			if s.held[key] == nil { // others may write an entry, and must end no lease by that
				s.remember(key, v)
			}
			s.mu.Unlock()
		}
		s.hub.Freed(key, true)
	default: // the queue was cleared, or the entry has expired
		s.hub.Freed(key, true)
	}
}

// left notes that this store has left the queue of a key at a revision.
func (l *listener) left(key string, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watches[key]; w != nil {
		w.left = max(w.left, revision)
	}
}

// enterOp puts this store into the queue of a key. It keeps a position that it
// has there.
func (s *Store) enterOp(key string, a *etcdLease) clientv3.Op {
	return clientv3.OpPut(s.names.entry(key, s.id), "", clientv3.WithLease(a.id))
}

// Enter puts this store into the queue of a key, or keeps its position there.
// If it finds the key free, it wakes the waiters: the stores that were told so
// may not want the key any more.
func (l *listener) Enter(ctx context.Context, key string) (queued bool, err error) {
	s := l.s
	g := &group{
		key: key, answers: make([]store.Answer, 1),
		enters: true, etcdLease: s.etcdLeaseFor(leaseSeconds(s.queueTTL)), lasts: s.queueTTL,
	}
	for _, b := range s.batches(s.extendAll(ctx, []*group{g})) {
		s.send(ctx, b)
	}
	if err := g.answers[0].Err; err != nil {
		return false, err
	}
	if g.entered && (g.view.stored == nil || !carried(&g.view.stored.rec)) {
		s.hub.Changed(key)
	}
	return g.entered, nil
}

// StepOut takes this store out of the queues of keys. If that fails, the
// entries expire.
func (l *listener) StepOut(ctx context.Context, keys []string) {
	for _, key := range keys {
		resp, err := once(ctx, requestTimeout, func(ctx context.Context) (*clientv3.DeleteResponse, error) {
			return l.s.client.Delete(ctx, l.s.names.entry(key, l.s.id))
		})
		if err != nil {
			return
		}
		l.left(key, resp.Header.Revision)
	}
}
