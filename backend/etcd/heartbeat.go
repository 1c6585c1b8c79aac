package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// heartbeat is the value of the etcd key that lives as long as a lease: it is
// on the etcd lease that carries it. A grant makes it, a release deletes it.
// Its times are on the clock of the record.
type heartbeat struct {
	written time.Time
	renewed time.Time // when the lease was renewed last; zero if it is none
}

// successors are the first two stores in the queue of a key. 0 is none.
type successors [2]identity

// notedFor returns for how long renewals only write the heartbeat. Then the
// next one writes the record, too. The heartbeat is forgotten with its etcd
// lease. So the end of a dead store's lease is known only up to this time.
func (s *Store) notedFor() time.Duration { return min(time.Hour, s.retention) }

// put returns the operation that writes a key's heartbeat.
func (s *Store) put(key string, b *heartbeat, a *etcdLease) clientv3.Op {
	return clientv3.OpPut(s.names.heartbeat(key), b.encode(), clientv3.WithLease(a.id))
}

// setAlarm starts a timer that ends at a deadline, unless one ends before. The
// caller holds the mutex.
func (s *Store) setAlarm(deadline time.Time) {
	if s.closed.Load() || s.alarm != nil && !deadline.Before(s.alarmAt) {
		return
	}
	s.stopAlarm()
	s.alarmAt = deadline
	s.alarm = time.AfterFunc(max(deadline.Sub(s.now()), 0)+time.Millisecond, func() { s.background(s.writeLapsed) })
}

// stopAlarm stops the timer. The caller holds the mutex.
func (s *Store) stopAlarm() {
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
}

// writeLapsed writes the heartbeats of leases that were not renewed in time. A
// heartbeat that was written after the deadline, and does not renew the lease,
// says by its own clock that the lease is over. So a stalled lease ends
// although others keep the etcd lease alive.
func (s *Store) writeLapsed(ctx context.Context) {
	s.mu.Lock()
	s.stopAlarm()
	now := s.now()
	var lapsed []*group
	for key, v := range s.held {
		switch _, deadline := v.renewal(); {
		case now.Before(deadline):
			s.setAlarm(deadline)
		case v.own.gone || v.own.remaining() <= 0:
			s.dropLease(v.own) // the heartbeat is gone, too
		default:
			lapsed = append(lapsed, &group{
				key: key, view: v, step: writing, etcdLease: v.own, now: now,
				beat: &heartbeat{written: now, renewed: v.beat.renewed},
			})
			s.setAlarm(now.Add(time.Second)) // try again if that fails
		}
	}
	s.mu.Unlock()
	for _, batch := range s.batches(lapsed) {
		s.send(ctx, batch)
	}
}
