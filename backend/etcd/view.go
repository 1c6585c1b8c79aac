package etcd

import (
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// view is what this store knows of a key at one revision. It does not change
// once it is cached.
type view struct {
	mod     int64         // mod_revision of the record; 0 if there is none
	stored  *storedRecord // nil if there is none
	beatMod int64         // mod_revision of the heartbeat; 0 if there is none
	beat    heartbeat
	own     *etcdLease // of this store, if it carries the key
	next    successors // the queue when this store was granted the key
	asOf    int64      // the revision at which all this was so
}

// renewal returns when a lease was renewed last, and its deadline.
func (v *view) renewal() (renewed, deadline time.Time) {
	rec := &v.stored.rec
	if rec.State == tenure.Held && v.beat.renewed.After(rec.Renewed) {
		return v.beat.renewed, v.beat.renewed.Add(rec.TTL)
	}
	return rec.Renewed, rec.Deadline
}

// unsure returns a view for when etcd may have another state. No transaction
// succeeds on it, and any other view is newer.
func (v view) unsure() *view {
	v.mod, v.beatMod, v.asOf = -1, -1, -1
	return &v
}

// record returns the record for the law, with all times on this store's clock.
// It adds the renewal of the heartbeat, and moves a deadline from another clock
// to this one.
func (s *Store) record(v *view, now time.Time) tenure.Record {
	if v.stored == nil {
		return tenure.Record{}
	}
	d, rec := v.stored, v.stored.rec
	if rec.State == tenure.Free {
		return rec
	}
	rec.Renewed, rec.Deadline = v.renewal()
	reached := now
	if d.clock != s.domain {
		reached = s.clocks.atLeast(rec.Key, d.clock)
	}
	switch over := v.beatMod == 0 || !reached.Before(rec.Deadline); {
	case over && now.Before(rec.Deadline):
		rec.Deadline = now // over, though not by this clock
	case over || d.clock == s.domain: // the deadline is right as it is
	case !now.Before(rec.Deadline) || !reached.IsZero() && rec.Deadline.Sub(reached) < rec.Deadline.Sub(now):
		// Not over, though by this clock it would be, or the other clock is
		// ahead. Give the latest time at which the other clock gets there.
		rec.Deadline = tenure.Time(now.Add(rec.Deadline.Sub(reached)))
	}
	return rec
}

// reads returns the operations that read a key: its record and its heartbeat.
func (s *Store) reads(key string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(s.names.record(key)), clientv3.OpGet(s.names.heartbeat(key))}
}

// parse makes a view of the answers to reads.
func (s *Store) parse(key string, answers []*etcdserverpb.ResponseOp, revision int64) (*view, error) {
	v := &view{asOf: revision}
	for _, kv := range answers[0].GetResponseRange().Kvs {
		if err := s.addRecord(v, key, kv); err != nil {
			return nil, err
		}
	}
	for _, kv := range answers[1].GetResponseRange().Kvs {
		if err := s.addHeartbeat(v, key, kv); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (s *Store) addRecord(v *view, key string, kv *mvccpb.KeyValue) (err error) {
	if v.stored, err = decodeRecord(key, kv.Value); err == nil {
		v.mod = kv.ModRevision
		s.clocks.saw(key, v.stored.clock, v.stored.written, v.mod)
	}
	return err
}

// addHeartbeat adds a heartbeat to a view that has the record.
func (s *Store) addHeartbeat(v *view, key string, kv *mvccpb.KeyValue) (err error) {
	v.beatMod = kv.ModRevision
	if v.stored == nil || !carried(&v.stored.rec) {
		return nil // somebody else has put it there
	}
	if v.beat, err = decodeHeartbeat(key, kv.Value); err != nil {
		if s.recall(key, v) {
			return nil
		}
		return err
	}
	s.clocks.saw(key, v.stored.clock, v.beat.written, v.beatMod)
	if _, deadline := v.renewal(); v.stored.store != s.id || !v.beat.written.Before(deadline) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.etcdLeases {
		if a.id == clientv3.LeaseID(kv.Lease) && a.id != 0 {
			v.own = a
		}
	}
	return nil
}

// recall puts this store's own last heartbeat into a view, in place of a
// damaged one, if the store carries the lease. The record shows that the term
// goes on and that nobody else carries it. So a heartbeat that others have
// planted costs no lease: the next renewal writes over it.
func (s *Store) recall(key string, v *view) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.held[key]
	if old == nil || old.mod <= 0 || v.stored.store != s.id || v.stored.rec.Grant != old.stored.rec.Grant {
		return false
	}
	v.beat, v.own = old.beat, old.own
	return true
}

// maxCached bounds the views of keys that this store does not carry.
const maxCached = 1024

// cached returns the cached view of a key, or nil.
func (s *Store) cached(key string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known(key)
}

// known is cached for a caller that holds the mutex.
func (s *Store) known(key string) *view {
	if v := s.held[key]; v != nil {
		return v
	}
	return s.views[key]
}

// remember caches a view unless a newer one is there, and returns the newest.
// The caller holds the mutex.
func (s *Store) remember(key string, v *view) *view {
	old := s.known(key)
	if old != nil && v.asOf < old.asOf {
		return old
	}
	delete(s.views, key)
	delete(s.held, key)
	if v.own != nil {
		s.held[key] = v
		_, deadline := v.renewal()
		s.setAlarm(deadline)
		return v
	}
	for other := range s.views {
		if len(s.views) < maxCached {
			break
		}
		delete(s.views, other)
	}
	s.views[key] = v
	return v
}
