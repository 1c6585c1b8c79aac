package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
)

// errLeaseLost is the error of a request whose etcd lease expired meanwhile.
var errLeaseLost = errors.New("etcd: the etcd lease expired while it was in use; ask again")

// etcdLease is an etcd lease that carries all leases of one store with one TTL.
// Their heartbeats exist as long as it does.
//
// It lasts a little longer than the TTL. The store keeps it alive only when it
// grants or renews a lease on it. So no answer has a deadline that is later
// than etcd has promised.
type etcdLease struct {
	seconds int64
	lock    chan struct{} // held while etcd grants it or keeps it alive

	// The store's mutex protects the rest.
	id        clientv3.LeaseID // 0 before etcd has granted it; then it does not change
	goodUntil clock.Instant    // etcd keeps it until then
	gone      bool
	doubtful  bool // it may carry a lease that this store does not know of
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

// dropLease forgets an etcd lease that is over, and the leases on it. The
// caller holds the mutex.
func (s *Store) dropLease(a *etcdLease) {
	a.gone = true
	if s.etcdLeases[a.seconds] == a {
		delete(s.etcdLeases, a.seconds)
	}
	for key, v := range s.held {
		if v.own == a {
			delete(s.held, key)
		}
	}
}

// leaseLost notes that an etcd lease is gone.
func (s *Store) leaseLost(a *etcdLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLease(a)
}

// extendLease makes sure that etcd keeps an etcd lease for another d. It has
// etcd grant it or keep it alive, unless it lasts that long already. It returns
// errLeaseLost if the etcd lease has expired.
func (s *Store) extendLease(ctx context.Context, a *etcdLease, d time.Duration) error {
	if lasts, err := s.leaseLasts(a, d); lasts || err != nil {
		return err
	}
	select {
	case a.lock <- struct{}{}:
	case <-ctx.Done():
		return wait.Ended(ctx)
	}
	defer func() { <-a.lock }()
	if lasts, err := s.leaseLasts(a, d); lasts || err != nil {
		return err
	}
	sent, id, seconds := clock.System().Now(), a.id, int64(0)
	var err error
	if id == 0 {
		var granted *clientv3.LeaseGrantResponse
		granted, err = once(ctx, s.timeout, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return s.client.Grant(ctx, a.seconds+s.extraSeconds)
		})
		if err == nil {
			id, seconds = granted.ID, granted.TTL
		}
	} else {
		seconds, err = repeated(ctx, s.timeout, func(ctx context.Context) (int64, error) {
			return s.keepAliveOnce(ctx, id)
		})
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seconds <= 0 { // it has expired
		s.dropLease(a)
	}
	if a.gone {
		return errLeaseLost
	}
	if a.id == 0 { // users of a granted etcd lease read it without the mutex
		a.id = id
	}
	a.goodUntil = sent.Add(time.Duration(seconds) * time.Second)
	return nil
}

func (s *Store) leaseLasts(a *etcdLease, d time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.gone {
		return false, errLeaseLost
	}
	return a.id != 0 && a.remaining() >= d, nil
}

// remaining returns for how long etcd certainly keeps the etcd lease. The
// caller holds the mutex.
func (a *etcdLease) remaining() time.Duration { return a.goodUntil.Sub(clock.System().Now()) }

// expired reports whether etcd may have let it expire. The caller holds the
// mutex.
func (a *etcdLease) expired() bool { return a.id != 0 && a.remaining() <= 0 }

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
// reply was lost, and whose etcd lease was not extended since.
func (s *Store) ensureHeld(ctx context.Context, g *group) error {
	last := &g.answers[len(g.answers)-1]
	switch {
	case last.Err != nil || !last.Record.Alive(g.now) || g.view.stored.store != s.id:
		return nil
	case g.view.own == nil || g.view.stored.clock != s.domain:
		return errLeaseLost // soon the heartbeat is gone, or the deadline has passed
	}
	return s.extendLease(ctx, g.view.own, last.Record.Deadline.Sub(g.now))
}

// revokeUnused revokes the etcd leases that carry nothing. Where that fails,
// they expire.
func (s *Store) revokeUnused() {
	s.mu.Lock()
	used := map[*etcdLease]bool{}
	for _, v := range s.held {
		used[v.own] = true
	}
	var unused []clientv3.LeaseID
	for _, a := range s.etcdLeases {
		if a.id != 0 && !a.gone && !a.doubtful && !used[a] {
			unused = append(unused, a.id)
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout/2)
	defer cancel()
	for _, id := range unused {
		if _, err := s.client.Revoke(ctx, id); err != nil {
			return
		}
	}
}

// carried reports whether a record needs an etcd lease.
func carried(rec *tenure.Record) bool {
	return rec.State == tenure.Held || rec.State == tenure.Reserved
}
