package etcd

import (
	"container/list"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// view is what is known of a key at some revision. It does not change once it is remembered.
type view struct {
	mod    int64         // of the record; 0 if there is none
	stored *storedRecord // nil if there is none
	// Of a deed that hangs on another store's anchor, if they have been read with it:
	leaseRead bool
	page      *page // nil if there is none
	pageMod   int64
	leaseGone bool      // the anchor's live key is not there
	cachedAt  time.Time // when it was remembered
	asOf      int64     // the revision at which it was so
}

// whole reports whether the view says all that the law needs to know.
func (s *Store) isComplete(v *view) bool {
	return v.stored == nil || v.stored.complete() && (v.stored.lease == 0 || v.leaseRead || v.stored.page.store == s.id && s.isOwn(v.stored))
}

func (s *Store) isOwn(d *storedRecord) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, m := s.ownMember(d)
	return m != nil
}

// record is the record as the law sees it at now, on this store's clock: with the renewals that are noted on its page, and with a deadline on another's clock moved to where it is on
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
	if bid != nil && renewed.IsZero() { // it counts from the bid, and what others reckon with is no sooner
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
	said := v.page != nil && v.page.clock != d.clock && v.page.over[d.slot] // by the one who was granted it, on another clock than the one who wrote it down
	switch over := v.leaseGone || said || !reached.Before(rec.Deadline); {
	case over && now.Before(rec.Deadline):
		rec.Deadline = now
	case over || d.clock == s.domain:
	case !now.Before(rec.Deadline) || !reached.IsZero() && rec.Deadline.Sub(reached) < rec.Deadline.Sub(now):
		rec.Deadline = tenure.Time(now.Add(rec.Deadline.Sub(reached))) // the latest that it can be
	}
	return rec
}

// standing is when a lease was renewed according to its page, and the bid of this store that it was granted to, if it was.
func (s *Store) renewalOf(v *view) (renewed time.Time, bid *ownBid) {
	if v.stored.page.store == s.id {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, m := s.ownMember(v.stored); m != nil {
			renewed, bid = m.renewed, m.bid
		}
	}
	if v.page != nil && v.page.renewed[v.stored.slot].After(renewed) { // of one's own, too: the answer to a renewal may have been lost
		renewed = v.page.renewed[v.stored.slot]
	}
	return renewed, bid
}

// look are the operations that read a view: the record, and what it is thought to hang on.
type lookup struct {
	key   string
	shelf bool
	page  pageID
	live  clientv3.LeaseID
}

// lookAt reads a key, guided by what is known of it.
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

// seen makes a view of what the operations have returned, one list of keys for each.
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

// views remembers the newest view of keys: of all that this store holds, and of some others.
type viewCache struct {
	byKey map[string]*list.Element
	lru   list.List // of *remembered that nothing keeps, the one used last in front
}

type cacheEntry struct {
	key    string
	view   *view
	pinned bool // this store holds the lease: it will renew and release it
}

// mostViews bounds the views of keys that this store does not hold.
const maxCached = 1024

func (c *viewCache) init() {
	c.byKey = map[string]*list.Element{}
	c.lru.Init()
}

// known is what is remembered of a key, or nil.
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

// remember keeps a view, unless a newer one is there. The caller holds the mutex.
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

// adopt takes over what is known of the key's shelf.
func (v *view) adoptShelf(known *view) {
	if v.stored != nil && known.stored != nil && v.stored.older == nil && v.stored.shelved == known.stored.shelved {
		v.stored.older = known.stored.older
	}
}

// unseat takes a lease of this store off its page when its record says no more that it is there. The caller holds the mutex.
func (s *Store) leaveOldSlot(old, next *storedRecord) {
	if p, m := s.ownMember(old); m != nil && (next == nil || next.page != old.page || next.slot != old.slot) {
		s.leaveSlot(p, old.slot)
	}
}

// forget drops what is remembered of a key.
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
