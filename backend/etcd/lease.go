package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/wait"
)

// etcdLease is an etcd lease that carries all leases of one store with one TTL.
// Its live key exists as long as the etcd lease does. If the live key is gone,
// all those leases are over.
//
// It lasts a little longer than the TTL. The store keeps it alive only when it
// grants or renews a lease on it. So no answer has a deadline that is later
// than etcd has promised.
type etcdLease struct {
	seconds int64
	lock    chan struct{} // held while etcd grants it or keeps it alive

	// The store's mutex protects the rest.
	// id is 0 before etcd has granted it. Then it does not change, so the user
	// of a granted etcd lease may read it without the mutex.
	id            clientv3.LeaseID
	goodUntil     time.Time // etcd keeps it until then, on the monotonic clock,
	goodUntilWall time.Time // and on the clock that runs during suspend
	hasLiveKey    bool
	gone          bool
	page          *ownPage // the newest page, which may have free slots
	users         int      // how many leases it carries
}

// slack is how much longer an etcd lease lasts than the leases on it. Under
// steady load it is kept alive about once in that time.
const slack = 2 * time.Second

// leaseSeconds returns the TTL of the etcd lease for leases that last d.
func leaseSeconds(d time.Duration) int64 { return int64((d + slack + time.Second - 1) / time.Second) }

// etcdLeaseFor returns the etcd lease with that TTL. etcd may not have granted
// it yet.
func (s *Store) etcdLeaseFor(seconds int64) *etcdLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.etcdLeases[seconds]
	if a == nil || a.expired() {
		for _, old := range s.etcdLeases { // also those of TTLs that nobody uses any more
			if old.expired() {
				s.dropLease(old)
			}
		}
		a = &etcdLease{seconds: seconds, lock: make(chan struct{}, 1)}
		s.etcdLeases[seconds] = a
	}
	return a
}

// dropLease forgets an etcd lease that is over, its pages, and the views of its
// leases. The caller holds the mutex.
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

// leaseLost notes that an etcd lease's live key is missing.
func (s *Store) leaseLost(a *etcdLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLease(a)
}

// extendLease makes sure that etcd keeps an etcd lease for another d. It has
// etcd grant it or keep it alive, unless it lasts that long already. An etcd
// lease that has expired is no error here: its user finds the live key missing.
func (s *Store) extendLease(ctx context.Context, a *etcdLease, d time.Duration) error {
	if s.leaseLasts(a, d) {
		return nil
	}
	select {
	case a.lock <- struct{}{}:
	case <-ctx.Done():
		return wait.Ended(ctx)
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
		if seconds, err = repeated(ctx, s.timeout, func(ctx context.Context) (int64, error) {
			return s.keepAliveOnce(ctx, id)
		}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seconds <= 0 { // it has expired
		s.dropLease(a)
		return nil
	}
	if a.id == 0 { // now it is granted
		if a.gone { // it was dropped while etcd was asked
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

// remaining returns for how long etcd certainly keeps the etcd lease. The
// caller holds the mutex.
func (a *etcdLease) remaining() time.Duration {
	now := time.Now()
	return min(a.goodUntil.Sub(now), a.goodUntilWall.Sub(now.Round(0)))
}

// expired reports whether etcd may have let it expire. The caller holds the
// mutex.
func (a *etcdLease) expired() bool { return a.id != 0 && a.remaining() <= 0 }

// isGranted reports whether etcd has granted an etcd lease.
func (s *Store) isGranted(a *etcdLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.id != 0
}

// keepAliveOnce asks etcd once to keep an etcd lease alive. It returns the new
// TTL. The client library's own call repeats without a pause while no member
// can be reached.
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

// ensureHeld makes sure that etcd keeps the lease that an answer says is held.
// If a request was sent again, the answer may be about an earlier write whose
// etcd lease was not extended.
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
		// Soon the live key is gone, or the deadline has passed.
		return errLeaseLost
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

// revokeUnused revokes the etcd leases that carry nothing. Where that fails,
// they expire.
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
