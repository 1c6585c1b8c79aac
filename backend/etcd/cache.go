package etcd

import (
	"container/list"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// view is what this store knows of a key at one revision. It does not change
// once it is cached.
type view struct {
	mod    int64         // mod_revision of the record; 0 if there is none
	stored *storedRecord // nil if there is none
	// leaseRead says that the live key and the page of the record's etcd lease
	// were read with it. The next three are set only then.
	leaseRead bool
	page      *page // nil if there is none
	pageMod   int64
	leaseGone bool // the live key does not exist
	cachedAt  time.Time
	asOf      int64 // the revision at which all this was so
}

// isComplete reports whether a view has everything that the law needs.
func (s *Store) isComplete(v *view) bool {
	return v.stored == nil || v.stored.complete() &&
		(v.stored.lease == 0 || v.leaseRead || v.stored.page.store == s.id && s.isOwn(v.stored))
}

func (s *Store) isOwn(d *storedRecord) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, m := s.ownMember(d)
	return m != nil
}

// record returns the record for the law, with all times on this store's clock.
// It adds the renewal on the page, and moves a deadline from another clock to
// this one.
func (s *Store) record(v *view, now time.Time) tenure.Record {
	if v.stored == nil {
		return tenure.Record{}
	}
	d, rec := v.stored, v.stored.rec
	if d.lease == 0 || rec.State == tenure.Free {
		return rec
	}
	renewed, bid := s.renewalOf(v)
	if rec.State == tenure.Held && renewed.After(rec.Renewed) {
		rec.Renewed, rec.Deadline = renewed, renewed.Add(rec.TTL)
	}
	// An award counts from the sending of its bid. Other stores take it to end
	// no earlier.
	if bid != nil && renewed.IsZero() {
		if ends := tenure.Time(now.Add(s.bidRemaining(bid))); ends.Before(rec.Deadline) || d.clock != s.domain {
			rec.Deadline = ends
		}
		if v.leaseGone && now.Before(rec.Deadline) {
			rec.Deadline = now
		}
		return rec
	}
	reached := now
	if d.clock != s.domain {
		reached = s.clocks.atLeast(rec.Key, d.clock)
	}
	// The new holder's page says that an award is over. The record is on the
	// clock of the store that wrote the award.
	said := v.page != nil && v.page.clock != d.clock && v.page.over[d.slot]
	switch over := v.leaseGone || said || !reached.Before(rec.Deadline); {
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

// renewalOf returns when a lease was renewed according to its page, and the own
// bid that was awarded the lease, if any.
func (s *Store) renewalOf(v *view) (renewed time.Time, bid *ownBid) {
	if v.stored.page.store == s.id {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, m := s.ownMember(v.stored); m != nil {
			renewed, bid = m.renewed, m.bid
		}
	}
	// Look at an own page, too: the answer to its renewal may have been lost.
	if v.page != nil && v.page.renewed[v.stored.slot].After(renewed) {
		renewed = v.page.renewed[v.stored.slot]
	}
	return renewed, bid
}

// lookup says which etcd keys to read for a view: the record, its shelf, and
// the live key and page that it is expected to name.
type lookup struct {
	key   string
	shelf bool
	page  pageID
	live  clientv3.LeaseID
}

// lookupFor makes the lookup of a key from its last known view, which may be
// nil.
func (s *Store) lookupFor(key string, v *view) lookup {
	l := lookup{key: key, shelf: true}
	if v != nil && v.stored != nil && v.stored.lease != 0 {
		l.live, l.page = v.stored.lease, v.stored.page
	}
	return l
}

func (l lookup) ops(n naming) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(n.record(l.key))}
	if l.shelf {
		ops = append(ops, clientv3.OpGet(n.shelf(l.key)))
	}
	if l.live != 0 {
		ops = append(ops, clientv3.OpGet(n.live(l.live), clientv3.WithKeysOnly()))
	}
	if l.page.store != 0 {
		ops = append(ops, clientv3.OpGet(n.page(l.page)))
	}
	return ops
}

// parseView makes a view of the answers to a lookup, one list of etcd keys for
// each operation. If the record names another live key or page than the lookup
// expected, the view has neither.
func (s *Store) parseView(l lookup, results [][]*mvccpb.KeyValue) (*view, error) {
	v := &view{}
	if len(results[0]) == 0 {
		return v, nil
	}
	kv := results[0][0]
	d, err := decodeRecord(l.key, kv.Value)
	if err != nil {
		return nil, err
	}
	v.mod, v.stored = kv.ModRevision, d
	s.clocks.saw(l.key, d.clock, d.written, v.mod)
	results = results[1:]
	if l.shelf {
		if d.shelved != 0 {
			if len(results[0]) == 0 {
				return nil, damaged(l.key, errShelf)
			}
			if err := d.decodeShelf(results[0][0].Value); err != nil {
				return nil, err
			}
		}
		results = results[1:]
	}
	if l.live == 0 || l.live != d.lease || l.page != d.page {
		return v, nil
	}
	v.leaseRead = true
	v.leaseGone = len(results[0]) == 0
	if l.page.store != 0 && len(results[1]) > 0 {
		kv := results[1][0]
		if v.page, err = decodePage(string(kv.Key), kv.Value); err != nil {
			return nil, err
		}
		v.pageMod = kv.ModRevision
		s.clocks.saw(l.key, v.page.clock, v.page.written, v.pageMod)
	}
	return v, nil
}

// viewCache has the newest known views: those of all keys that this store
// holds, and of some others.
type viewCache struct {
	byKey map[string]*list.Element
	lru   list.List // entries that are not pinned, the one used last in front
}

type cacheEntry struct {
	key    string
	view   *view
	pinned bool // this store holds the lease, and will renew or release it
}

// maxCached bounds the views of keys that this store does not hold.
const maxCached = 1024

func (c *viewCache) init() {
	c.byKey = map[string]*list.Element{}
	c.lru.Init()
}

// cached returns the cached view of a key, or nil.
func (s *Store) cached(key string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.cache.byKey[key]
	if e == nil {
		return nil
	}
	if r := e.Value.(*cacheEntry); !r.pinned {
		s.cache.lru.MoveToFront(e)
	}
	return e.Value.(*cacheEntry).view
}

// addView caches a view unless a newer one is there. It notices here if the
// record is an award to an own bid. The caller holds the mutex.
func (s *Store) addView(key string, v *view) {
	p, m := s.ownMember(v.stored)
	c, kept := &s.cache, m != nil
	v.cachedAt = time.Now()
	if e := c.byKey[key]; e != nil {
		r := e.Value.(*cacheEntry)
		v.adoptShelf(r.view)
		if v.asOf < r.view.asOf {
			return
		}
		s.leaveOldSlot(r.view.stored, v.stored)
		if r.pinned != kept {
			c.forget(key)
		} else {
			r.view = v
		}
	}
	if m != nil && m.bid != nil && !m.bid.awarded {
		s.noteAward(p, m, v)
	}
	if c.byKey[key] != nil {
		return
	}
	r := &cacheEntry{key: key, view: v, pinned: kept}
	if kept {
		c.byKey[key] = &list.Element{Value: r}
		return
	}
	c.byKey[key] = c.lru.PushFront(r)
	for c.lru.Len() > maxCached {
		c.forget(c.lru.Back().Value.(*cacheEntry).key)
	}
}

// adoptShelf takes over the history of an older view if the shelf is the same.
func (v *view) adoptShelf(known *view) {
	if v.stored != nil && known.stored != nil && v.stored.older == nil && v.stored.shelved == known.stored.shelved {
		v.stored.older = known.stored.older
	}
}

// leaveOldSlot takes a lease off its own page if its new record is not there
// any more. The caller holds the mutex.
func (s *Store) leaveOldSlot(old, next *storedRecord) {
	if p, m := s.ownMember(old); m != nil && (next == nil || next.page != old.page || next.slot != old.slot) {
		s.leaveSlot(p, old.slot)
	}
}

// forget drops the view of a key.
func (c *viewCache) forget(key string) {
	e := c.byKey[key]
	if e == nil {
		return
	}
	if !e.Value.(*cacheEntry).pinned {
		c.lru.Remove(e)
	}
	delete(c.byKey, key)
}
