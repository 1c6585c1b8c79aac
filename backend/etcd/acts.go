package etcd

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// The transaction that carries out an operator's act also puts a notice: its
// value is the key acted on. A store with listeners watches the notices, and
// passes on every key. etcd tells a watch of each put, overwritten or not.
//
// A notice is named by the number of its group, because no transaction puts one
// key twice. The names are used again, so there are never more than maxGroups
// notices, and mostly one.

func (n naming) notices() string { return string(n) + "a/" }

// byHand reports whether a group has an operator's request.
func (g *group) byHand() bool {
	return slices.ContainsFunc(g.requests, func(r tenure.Request) bool { return r.Verb.ByHand() })
}

// notice returns the operation that announces an operator's act.
func (s *Store) notice(g *group) clientv3.Op {
	return clientv3.OpPut(s.names.notices()+strconv.Itoa(g.number), g.key)
}

// errActWatchEnded is the error of Acts if its watch ended before it began.
var errActWatchEnded = errors.New("etcd: the watch of operators' acts has ended; ask again")

// actWatch is one watch of the notices, for all listeners of a store.
type actWatch struct {
	acts      turns.Acts
	end       context.CancelFunc
	listeners int // the store's mutex protects it

	once  sync.Once
	ready chan struct{} // closed when the watch has begun or failed
	err   error         // why it failed
}

// began notes that the watch has begun, or why it failed. Only the first call
// counts.
func (h *actWatch) began(err error) {
	h.once.Do(func() {
		h.err = err
		close(h.ready)
	})
}

// Acts returns a channel of the keys on which operators act. All listeners
// share one watch, on the store's own connection. It ends with the last of
// them.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	h, keys := s.addActListener(ctx)
	if h == nil {
		return nil, store.Unknown(ErrClosed)
	}
	context.AfterFunc(ctx, func() { s.removeActListener(h) })
	select {
	case <-h.ready:
	case <-ctx.Done():
		return nil, store.Unknown(wait.Ended(ctx))
	}
	if h.err != nil {
		return nil, store.Unknown(h.err)
	}
	return keys, nil
}

// addActListener adds a listener, and begins the watch with the first. It
// returns nil if the store is closed.
func (s *Store) addActListener(ctx context.Context) (*actWatch, <-chan string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, nil
	}
	if s.actWatch == nil {
		life, end := context.WithCancel(s.life)
		h := &actWatch{end: end, ready: make(chan struct{})}
		s.actWatch = h
		s.done.Go(func() { s.watchActs(life, h) })
	}
	s.actWatch.listeners++
	return s.actWatch, s.actWatch.acts.Listen(ctx)
}

// removeActListener removes a listener, and ends the watch with the last.
func (s *Store) removeActListener(h *actWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.listeners--; h.listeners > 0 {
		return
	}
	h.end()
	if s.actWatch == h {
		s.actWatch = nil // the next listener begins another
	}
}

// watchActs passes on notices until the watch ends. etcd's client resumes it on
// another member by itself. A lost leader or a compaction ends it. Then the
// listeners' channels are closed.
func (s *Store) watchActs(ctx context.Context, h *actWatch) {
	defer func() {
		s.mu.Lock()
		if s.actWatch == h {
			s.actWatch = nil // before acts.End, so that nobody listens afterwards
		}
		s.mu.Unlock()
		h.end()
		h.began(errActWatchEnded)
		h.acts.End()
	}()
	// etcd checks a watch by the login with which its stream was opened. This
	// watch stays open for long. So it has a stream of its own: on a shared
	// one, etcd would refuse waiters' watches when that login has lapsed.
	ctx = clientv3.WithRequireLeader(ctx)
	ctx = metadata.AppendToOutgoingContext(ctx, "croft-acts", s.id.String())
	for resp := range s.client.Watch(ctx, s.names.notices(), clientv3.WithPrefix(),
		clientv3.WithFilterDelete(), clientv3.WithCreatedNotify()) {
		if err := resp.Err(); err != nil {
			h.began(explain(ctx, err))
			return
		}
		if resp.Created {
			h.began(nil)
		}
		for _, e := range resp.Events {
			// Any user with write permission may have put it there.
			if v := e.Kv.Value; len(v) <= fence.MaxKey && fence.CheckKey(string(v)) == nil {
				h.acts.Tell(string(v))
			}
		}
	}
}
