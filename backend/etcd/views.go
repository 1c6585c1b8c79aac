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
	mod  int64 // of the record; 0 if there is none
	deed *deed // nil if there is none
	// Of a deed that hangs on another store's anchor, if they have been read with it:
	read    bool
	page    *page // nil if there is none
	pageMod int64
	gone    bool      // the anchor's live key is not there
	at      time.Time // when it was remembered
	asOf    int64     // the revision at which it was so
}

// whole reports whether the view says all that the law needs to know.
func (s *Store) whole(v *view) bool {
	return v.deed == nil || v.deed.complete() && (v.deed.lease == 0 || v.read || v.deed.page.store == s.id && s.isMine(v.deed))
}

func (s *Store) isMine(d *deed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, m := s.mine(d)
	return m != nil
}

// record is the record as the law sees it at now, on this store's clock: with the renewals that are noted on its page, and with a deadline on another's clock moved to where it is on
// this one.
func (s *Store) record(v *view, now time.Time) tenure.Record {
	if v.deed == nil {
		return tenure.Record{}
	}
	d, rec := v.deed, v.deed.rec
	if d.lease == 0 || rec.State == tenure.Free {
		return rec
	}
	renewed, bid := s.standing(v)
	if rec.State == tenure.Held && renewed.After(rec.Renewed) {
		rec.Renewed, rec.Deadline = renewed, renewed.Add(rec.TTL)
	}
	if bid != nil && renewed.IsZero() { // it counts from the bid, and what others reckon with is no sooner
		if ends := tenure.Time(now.Add(s.left(bid))); ends.Before(rec.Deadline) || d.clock != s.domain {
			rec.Deadline = ends
		}
		if v.gone && now.Before(rec.Deadline) {
			rec.Deadline = now
		}
		return rec
	}
	reached := now
	if d.clock != s.domain {
		reached = s.clocks.least(rec.Key, d.clock)
	}
	said := v.page != nil && v.page.clock != d.clock && v.page.over[d.slot] // by the one who was granted it, on another clock than the one who wrote it down
	switch over := v.gone || said || !reached.Before(rec.Deadline); {
	case over && now.Before(rec.Deadline):
		rec.Deadline = now
	case over || d.clock == s.domain:
	case !now.Before(rec.Deadline) || !reached.IsZero() && rec.Deadline.Sub(reached) < rec.Deadline.Sub(now):
		rec.Deadline = tenure.Time(now.Add(rec.Deadline.Sub(reached))) // the latest that it can be
	}
	return rec
}

// standing is when a lease was renewed according to its page, and the bid of this store that it was granted to, if it was.
func (s *Store) standing(v *view) (renewed time.Time, bid *stake) {
	if v.deed.page.store == s.id {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, m := s.mine(v.deed); m != nil {
			renewed, bid = m.renewed, m.stake
		}
	}
	if v.page != nil && v.page.renewed[v.deed.slot].After(renewed) { // of one's own, too: the answer to a renewal may have been lost
		renewed = v.page.renewed[v.deed.slot]
	}
	return renewed, bid
}

// look are the operations that read a view: the record, and what it is thought to hang on.
type look struct {
	key   string
	shelf bool
	page  pageID
	live  clientv3.LeaseID
}

// lookAt reads a key, guided by what is known of it.
func (s *Store) lookAt(key string, v *view) look {
	l := look{key: key, shelf: true}
	if v != nil && v.deed != nil && v.deed.lease != 0 {
		l.live, l.page = v.deed.lease, v.deed.page
	}
	return l
}

func (l look) ops(n naming) []clientv3.Op {
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
func (s *Store) seen(l look, results [][]*mvccpb.KeyValue) (*view, error) {
	v := &view{}
	if len(results[0]) == 0 {
		return v, nil
	}
	kv := results[0][0]
	d, err := decodeDeed(l.key, kv.Value)
	if err != nil {
		return nil, err
	}
	v.mod, v.deed = kv.ModRevision, d
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
	v.read = true
	v.gone = len(results[0]) == 0
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
type views struct {
	byKey map[string]*list.Element
	order list.List // of *remembered that nothing keeps, the one used last in front
}

type remembered struct {
	key  string
	view *view
	kept bool // this store holds the lease: it will renew and release it
}

// mostViews bounds the views of keys that this store does not hold.
const mostViews = 1024

func (c *views) init() {
	c.byKey = map[string]*list.Element{}
	c.order.Init()
}

// known is what is remembered of a key, or nil.
func (s *Store) known(key string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.views.byKey[key]
	if e == nil {
		return nil
	}
	if r := e.Value.(*remembered); !r.kept {
		s.views.order.MoveToFront(e)
	}
	return e.Value.(*remembered).view
}

// remember keeps a view, unless a newer one is there. The caller holds the mutex.
func (s *Store) remember(key string, v *view) {
	p, m := s.mine(v.deed)
	c, kept := &s.views, m != nil
	v.at = time.Now()
	if e := c.byKey[key]; e != nil {
		r := e.Value.(*remembered)
		v.adopt(r.view)
		if v.asOf < r.view.asOf {
			return
		}
		s.unseat(r.view.deed, v.deed)
		if r.kept != kept {
			c.forget(key)
		} else {
			r.view = v
		}
	}
	if m != nil && m.stake != nil && !m.stake.awarded {
		s.award(p, m, v)
	}
	if c.byKey[key] != nil {
		return
	}
	r := &remembered{key: key, view: v, kept: kept}
	if kept {
		c.byKey[key] = &list.Element{Value: r}
		return
	}
	c.byKey[key] = c.order.PushFront(r)
	for c.order.Len() > mostViews {
		c.forget(c.order.Back().Value.(*remembered).key)
	}
}

// adopt takes over what is known of the key's shelf.
func (v *view) adopt(known *view) {
	if v.deed != nil && known.deed != nil && v.deed.older == nil && v.deed.shelved == known.deed.shelved {
		v.deed.older = known.deed.older
	}
}

// unseat takes a lease of this store off its page when its record says no more that it is there. The caller holds the mutex.
func (s *Store) unseat(old, next *deed) {
	if p, m := s.mine(old); m != nil && (next == nil || next.page != old.page || next.slot != old.slot) {
		s.leave(p, old.slot)
	}
}

// forget drops what is remembered of a key.
func (c *views) forget(key string) {
	e := c.byKey[key]
	if e == nil {
		return
	}
	if !e.Value.(*remembered).kept {
		c.order.Remove(e)
	}
	delete(c.byKey, key)
}
