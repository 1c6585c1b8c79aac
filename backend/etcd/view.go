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
	mod    int64         // mod_revision of the record; 0 if there is none
	stored *storedRecord // nil if there is none
	// pageRead says that the page that the record names was read with it, as
	// page and pageMod. page is nil if the page is gone.
	pageRead bool
	page     *page
	pageMod  int64
	asOf     int64 // the revision at which all this was so
}

// isComplete reports whether a view has everything that the law needs.
func (s *Store) isComplete(v *view) bool {
	return v.stored == nil || v.stored.rec.State == tenure.Free || v.pageRead || s.isOwn(v.stored)
}

// isOfTerm reports whether a view shows the same lease as a stored record, on
// the same page.
func (v *view) isOfTerm(d *storedRecord) bool {
	return v.stored != nil && carried(&v.stored.rec) && v.stored.rec.Grant == d.rec.Grant && v.stored.page == d.page
}

// record returns the record for the law, with all times on this store's clock.
// It adds the renewal on the page, and moves a deadline from another clock to
// this one.
func (s *Store) record(v *view, now time.Time) tenure.Record {
	if v.stored == nil {
		return tenure.Record{}
	}
	d, rec := v.stored, v.stored.rec
	if rec.State == tenure.Free {
		return rec
	}
	if renewed := s.renewalOf(v); rec.State == tenure.Held && renewed.After(rec.Renewed) {
		rec.Renewed, rec.Deadline = renewed, renewed.Add(rec.TTL)
	}
	reached := now
	if d.clock != s.domain {
		reached = s.clocks.atLeast(rec.Key, d.clock)
	}
	gone := v.pageRead && v.page == nil
	switch over := gone || !reached.Before(rec.Deadline); {
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

// renewalOf returns when a lease was renewed last according to its page.
func (s *Store) renewalOf(v *view) (renewed time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.memberOf(v.stored); m != nil {
		renewed = m.renewed
	}
	// Look at an own page, too: the answer to its renewal may have been lost.
	if v.page != nil && v.page.renewed[short(v.stored.rec.Grant)].After(renewed) {
		renewed = v.page.renewed[short(v.stored.rec.Grant)]
	}
	return renewed
}

// reads returns the operations that read a key: its record, and the page that
// the last known view names.
func (s *Store) reads(key string, v *view) (ops []clientv3.Op, expected pageID) {
	ops = []clientv3.Op{clientv3.OpGet(s.names.record(key))}
	if v != nil && v.stored != nil && v.stored.rec.State != tenure.Free {
		expected = v.stored.page
		ops = append(ops, clientv3.OpGet(s.names.page(expected)))
	}
	return ops, expected
}

// parse makes a view of the answers to reads. If the record does not name the
// expected page, the view has no page.
func (s *Store) parse(key string, expected pageID, answers []*etcdserverpb.ResponseOp, revision int64) (*view, error) {
	v := &view{asOf: revision}
	kvs := answers[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return v, nil
	}
	var pages []*mvccpb.KeyValue
	if expected.store != 0 {
		pages = answers[1].GetResponseRange().Kvs
	}
	return v, s.fill(v, key, kvs[0], expected, pages)
}

// fill fills a view with a record, and the page if the record names that one.
func (s *Store) fill(v *view, key string, kv *mvccpb.KeyValue, expected pageID, pages []*mvccpb.KeyValue) (err error) {
	if v.stored, err = decodeRecord(key, kv.Value); err != nil {
		return err
	}
	v.mod = kv.ModRevision
	s.clocks.saw(key, v.stored.clock, v.stored.written, v.mod)
	if v.stored.page != expected || v.stored.rec.State == tenure.Free {
		return nil
	}
	v.pageRead = true
	if len(pages) > 0 {
		if v.page, err = decodePage(string(pages[0].Key), pages[0].Value); err != nil {
			return err
		}
		v.pageMod = pages[0].ModRevision
		s.clocks.saw(key, v.stored.clock, v.page.written, v.pageMod)
	}
	return nil
}

// maxCached bounds the views of keys that this store does not hold.
const maxCached = 1024

// cached returns the cached view of a key, or nil.
func (s *Store) cached(key string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[key]
}

// remember caches a view unless a newer one is there. The caller holds the
// mutex.
func (s *Store) remember(key string, v *view) {
	if old := s.views[key]; old != nil && v.asOf < old.asOf {
		return
	}
	if m := s.held[key]; m != nil && s.memberOf(v.stored) != m {
		s.removeMember(m)
	}
	s.views[key] = v
	for other := range s.views {
		if len(s.views)-len(s.held) <= maxCached {
			break
		}
		if s.held[other] == nil && other != key {
			delete(s.views, other)
		}
	}
}
