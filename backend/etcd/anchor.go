package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// anchor is an etcd lease on which all leases of one store with one TTL live, however many they are. Its live key is in etcd for as long as it lives: whoever finds it gone knows that
// all those leases are over.
//
// It lasts a little longer than the TTL, and is kept alive only when a lease is granted or renewed: the deadline that is answered is never later than etcd has promised.
type anchor struct {
	seconds int64
	turn    chan struct{} // held while etcd is asked to grant it or to keep it alive

	// Under the store's mutex.
	id      clientv3.LeaseID // 0 before it is granted
	good    time.Time        // until then, on the monotonic clock, etcd keeps it,
	wall    time.Time        // and until then on the other, which runs on while the machine is suspended
	planted bool             // its live key is there
	gone    bool
	page    *openPage // the one with room
	tied    int       // leases that hang on it
}

// slack is by how much an anchor outlasts the leases on it: under steady load it is kept alive as often.
const slack = 2 * time.Second

// class is how many seconds an anchor lasts that carries leases of some duration.
func class(d time.Duration) int64 { return int64((d + slack + time.Second - 1) / time.Second) }

// anchorFor finds the anchor of a class; it may have to be granted yet.
func (s *Store) anchorFor(seconds int64) *anchor {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.anchors[seconds]
	if a == nil || a.over() {
		for _, old := range s.anchors { // also those of TTLs that nobody asks for any more
			if old.over() {
				s.drop(old)
			}
		}
		a = &anchor{seconds: seconds, turn: make(chan struct{}, 1)}
		s.anchors[seconds] = a
	}
	return a
}

// drop forgets an anchor whose lease is over. The caller holds the mutex.
func (s *Store) drop(a *anchor) {
	a.gone = true
	if s.anchors[a.seconds] == a {
		delete(s.anchors, a.seconds)
	}
	for n, p := range s.pages {
		if p.anchor == a {
			p.stop()
			delete(s.pages, n)
			for _, m := range p.members {
				s.views.forget(m.key)
			}
		}
	}
}

// lost notes that an anchor's live key was found missing.
func (s *Store) lost(a *anchor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(a)
}

// cover makes sure that etcd keeps an anchor for another d: by granting it, by keeping it alive, or because it is so already.
func (s *Store) cover(ctx context.Context, a *anchor, d time.Duration) error {
	if s.covers(a, d) {
		return nil
	}
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return over(ctx)
	}
	defer func() { <-a.turn }()
	if s.covers(a, d) {
		return nil
	}
	sent := time.Now()
	s.mu.Lock()
	id := a.id
	s.mu.Unlock()
	var seconds int64
	if id == 0 {
		granted, err := once(ctx, s.bound, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return s.client.Grant(ctx, a.seconds+s.extra)
		})
		if err != nil {
			return err
		}
		id, seconds = granted.ID, granted.TTL
	} else {
		var err error
		if seconds, err = repeated(ctx, s.bound, func(ctx context.Context) (int64, error) { return s.beat(ctx, id) }); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seconds <= 0 { // it has expired
		s.drop(a)
		return nil // whoever uses it finds its live key missing
	}
	if a.id == 0 { // it does not change after that: whoever has a granted anchor reads it freely
		if a.gone { // it was given up before that
			return errAnchorLost
		}
		a.id = id
	}
	a.good = sent.Add(time.Duration(seconds) * time.Second)
	a.wall = a.good.Round(0)
	return nil
}

func (s *Store) covers(a *anchor, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.id != 0 && (a.gone || a.left() >= d)
}

// left is how long etcd certainly keeps an anchor yet. The caller holds the mutex.
func (a *anchor) left() time.Duration {
	now := time.Now()
	return min(a.good.Sub(now), a.wall.Sub(now.Round(0)))
}

// over reports whether etcd may have let it expire. The caller holds the mutex.
func (a *anchor) over() bool { return a.id != 0 && a.left() <= 0 }

// granted reports whether etcd has granted an anchor.
func (s *Store) granted(a *anchor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.id != 0
}

// beat keeps an etcd lease alive, once. The client library's own call for this asks again without a pause for as long as no member can be reached.
func (s *Store) beat(ctx context.Context, id clientv3.LeaseID) (seconds int64, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	_ = stream.CloseSend()
	return resp.TTL, nil
}

// assure makes sure that etcd keeps what an answer says is held: the answer to a request that was sent again may be about a write whose anchor nobody could keep alive.
func (s *Store) assure(ctx context.Context, l *lane) error {
	if l.view == nil || l.view.deed == nil || l.view.deed.lease == 0 {
		return nil
	}
	rec := l.answers[len(l.answers)-1].Record
	if l.answers[len(l.answers)-1].Err != nil || !rec.Alive(l.now) {
		return nil
	}
	s.mu.Lock()
	var mine *anchor
	for _, a := range s.anchors {
		if a.id == l.view.deed.lease {
			mine = a
		}
	}
	s.mu.Unlock()
	if d := l.view.deed; d.page.store == s.id && (mine == nil || d.clock != s.domain && !s.isMine(d)) {
		return errAnchorLost // soon its live key is gone, or the deadline passed
	}
	if mine == nil {
		return nil
	}
	if err := s.cover(ctx, mine, rec.Deadline.Sub(l.now)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine.gone {
		return errAnchorLost
	}
	return nil
}

// giveBack revokes the etcd leases that nothing hangs on. Those that cannot be given back expire.
func (s *Store) giveBack() {
	s.mu.Lock()
	var free []clientv3.LeaseID
	for _, a := range s.anchors {
		if a.id != 0 && a.tied == 0 && !a.gone {
			free = append(free, a.id)
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout/2)
	defer cancel()
	for _, id := range free {
		if _, err := s.client.Revoke(ctx, id); err != nil {
			return
		}
	}
}
