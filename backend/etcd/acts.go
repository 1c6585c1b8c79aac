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
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// The transaction that carries out an operator's act also puts a notice: its
// value is the key acted on. A store with listeners watches the notices, and
// passes on every key. etcd tells a watch of each put, overwritten or not.
//
// A notice is named by the number of its lane, because no transaction puts one
// key twice. The names are used again, so there are never more than mostLanes
// notices, and mostly one.

func (n naming) notices() string { return string(n) + "a/" }

// byHand reports whether an operator's request is among those of a lane.
func (g *group) byHand() bool {
	return slices.ContainsFunc(g.requests, func(r tenure.Request) bool { return r.Verb.ByHand() })
}

// notice is the operation that tells of an operator's act.
func (s *Store) notice(g *group) clientv3.Op {
	return clientv3.OpPut(s.names.notices()+strconv.Itoa(g.number), g.key)
}

// errUnheard is why Acts fails if its watch ended before it began.
var errActWatchEnded = errors.New("etcd: the watch of operators' acts has ended; ask again")

// hearing is one watch of the notices, for all listeners of a store.
type actWatch struct {
	acts      turns.Acts
	end       context.CancelFunc
	listeners int // under the store's mutex

	once  sync.Once
	ready chan struct{} // closed when the watch has begun, or never will
	err   error         // why not
}

func (h *actWatch) began(err error) {
	h.once.Do(func() {
		h.err = err
		close(h.ready)
	})
}

// Acts tells of operators' acts. All listeners share one watch, which ends with
// the last of them. It is on the store's own client and connection.
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
		return nil, store.Unknown(over(ctx))
	}
	if h.err != nil {
		return nil, store.Unknown(h.err)
	}
	return keys, nil
}

// startHearing adds a listener to the watch. It returns nil if the store is
// closed.
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

// stopHearing takes a listener off, and ends the watch with the last.
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

// hear passes on what etcd tells, until the watch ends. etcd's client resumes
// it on another member by itself. A lost leader or a compaction ends it: then
// the listeners' channels are closed.
func (s *Store) watchActs(ctx context.Context, h *actWatch) {
	defer func() {
		s.mu.Lock()
		if s.actWatch == h {
			s.actWatch = nil // before End: nobody begins to listen afterwards
		}
		s.mu.Unlock()
		h.end()
		h.began(errActWatchEnded)
		h.acts.End()
	}()
	// etcd checks a watch by the login its stream was opened with. This watch
	// stays open for long, so it shares no stream with those of waiters: theirs
	// would be refused when that login has lapsed.
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
			// Anybody with the right to write may have put it there.
			if v := e.Kv.Value; len(v) <= fence.MaxKey && fence.CheckKey(string(v)) == nil {
				h.acts.Tell(string(v))
			}
		}
	}
}
