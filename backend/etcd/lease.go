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
type etcdLease struct {
	seconds int64
	lock    chan struct{} // held while etcd is asked to grant it or to keep it alive

	// Under the store's mutex.
	id            clientv3.LeaseID // 0 before it is granted
	goodUntil     time.Time        // until then, on the monotonic clock, etcd keeps it,
	goodUntilWall time.Time        // and until then on the other, which runs on while the machine is suspended
	hasLiveKey    bool             // its live key is there
	gone          bool
	page          *ownPage // the one with room
	users         int      // leases that hang on it
}

// slack is by how much an anchor outlasts the leases on it: under steady load it is kept alive as often.
const slack = 2 * time.Second

// class is how many seconds an anchor lasts that carries leases of some duration.
func leaseSeconds(d time.Duration) int64 { return int64((d + slack + time.Second - 1) / time.Second) }

// anchorFor finds the anchor of a class; it may have to be granted yet.
func (s *Store) etcdLeaseFor(seconds int64) *etcdLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.etcdLeases[seconds]
	if a == nil || a.expired() {
		for _, old := range s.etcdLeases { // also those of TTLs that nobody asks for any more
			if old.expired() {
				s.dropLease(old)
			}
		}
		a = &etcdLease{seconds: seconds, lock: make(chan struct{}, 1)}
		s.etcdLeases[seconds] = a
	}
	return a
}

// drop forgets an anchor whose lease is over. The caller holds the mutex.
func (s *Store) dropLease(a *etcdLease) {
	a.gone = true
	if s.etcdLeases[a.seconds] == a {
		delete(s.etcdLeases, a.seconds)
	}
	for n, p := range s.pages {
		if p.etcdLease == a {
			p.stopAlarm()
			delete(s.pages, n)
			for _, m := range p.members {
				s.cache.forget(m.key)
			}
		}
	}
}

// lost notes that an anchor's live key was found missing.
func (s *Store) leaseLost(a *etcdLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLease(a)
}

// cover makes sure that etcd keeps an anchor for another d: by granting it, by keeping it alive, or because it is so already.
func (s *Store) extendLease(ctx context.Context, a *etcdLease, d time.Duration) error {
	if s.leaseLasts(a, d) {
		return nil
	}
	select {
	case a.lock <- struct{}{}:
	case <-ctx.Done():
		return over(ctx)
	}
	defer func() { <-a.lock }()
	if s.leaseLasts(a, d) {
		return nil
	}
	sent := time.Now()
	s.mu.Lock()
	id := a.id
	s.mu.Unlock()
	var seconds int64
	if id == 0 {
		granted, err := once(ctx, s.timeout, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return s.client.Grant(ctx, a.seconds+s.extraSeconds)
		})
		if err != nil {
			return err
		}
		id, seconds = granted.ID, granted.TTL
	} else {
		var err error
		if seconds, err = repeated(ctx, s.timeout, func(ctx context.Context) (int64, error) { return s.keepAliveOnce(ctx, id) }); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seconds <= 0 { // it has expired
		s.dropLease(a)
		return nil // whoever uses it finds its live key missing
	}
	if a.id == 0 { // it does not change after that: whoever has a granted anchor reads it freely
		if a.gone { // it was given up before that
			return errLeaseLost
		}
		a.id = id
	}
	a.goodUntil = sent.Add(time.Duration(seconds) * time.Second)
	a.goodUntilWall = a.goodUntil.Round(0)
	return nil
}

func (s *Store) leaseLasts(a *etcdLease, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.id != 0 && (a.gone || a.remaining() >= d)
}

// left is how long etcd certainly keeps an anchor yet. The caller holds the mutex.
func (a *etcdLease) remaining() time.Duration {
	now := time.Now()
	return min(a.goodUntil.Sub(now), a.goodUntilWall.Sub(now.Round(0)))
}

// over reports whether etcd may have let it expire. The caller holds the mutex.
func (a *etcdLease) expired() bool { return a.id != 0 && a.remaining() <= 0 }

// granted reports whether etcd has granted an anchor.
func (s *Store) isGranted(a *etcdLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.id != 0
}

// beat keeps an etcd lease alive, once. The client library's own call for this asks again without a pause for as long as no member can be reached.
func (s *Store) keepAliveOnce(ctx context.Context, id clientv3.LeaseID) (seconds int64, err error) {
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
func (s *Store) ensureHeld(ctx context.Context, g *group) error {
	if g.view == nil || g.view.stored == nil || g.view.stored.lease == 0 {
		return nil
	}
	rec := g.answers[len(g.answers)-1].Record
	if g.answers[len(g.answers)-1].Err != nil || !rec.Alive(g.now) {
		return nil
	}
	s.mu.Lock()
	var mine *etcdLease
	for _, a := range s.etcdLeases {
		if a.id == g.view.stored.lease {
			mine = a
		}
	}
	s.mu.Unlock()
	if d := g.view.stored; d.page.store == s.id && (mine == nil || d.clock != s.domain && !s.isOwn(d)) {
		return errLeaseLost // soon its live key is gone, or the deadline passed
	}
	if mine == nil {
		return nil
	}
	if err := s.extendLease(ctx, mine, rec.Deadline.Sub(g.now)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine.gone {
		return errLeaseLost
	}
	return nil
}

// giveBack revokes the etcd leases that nothing hangs on. Those that cannot be given back expire.
func (s *Store) revokeUnused() {
	s.mu.Lock()
	var free []clientv3.LeaseID
	for _, a := range s.etcdLeases {
		if a.id != 0 && a.users == 0 && !a.gone {
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
