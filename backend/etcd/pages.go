package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is how many leases have their renewals on one page. One transaction renews all of them and makes sure of each that it is still its holder's: etcd takes 128 operations
// in one.
const pageSize = 96

// openPage is a page of this store: one small key that is written at each renewal instead of the records of all the leases on it.
type ownPage struct {
	id        pageID
	etcdLease *etcdLease
	lock      chan struct{} // held while it is written: each writing carries all that is on it

	// Under the store's mutex.
	nextSlot int // slots given out; none is given out twice
	members  map[int]*member
	written  bool  // it has been written
	mod      int64 // the revision of the last writing
	alarm    *time.Timer
}

// member is a lease whose renewals are on a page.
type member struct {
	key      string
	renewed  time.Time // as confirmed on the page; zero if it is as the record says
	ttl      time.Duration
	deadline time.Time
	lapsed   bool       // the page says so
	next     successors // the stores to leave the key to when it is freed

	bid       *ownBid       // the bid that it was granted to, or is kept free for
	inQueue   bool          // the bid's place is still in the queue
	queueRead chan struct{} // closed when it is known who is next; nil if nobody has asked
	removed   bool          // it is on its page no more
}

// seat finds a slot for a lease on a page of an anchor. The caller holds the mutex.
func (s *Store) takeSlot(a *etcdLease, m *member) (*ownPage, int) {
	p := a.page
	if p == nil || p.nextSlot == pageSize {
		s.lastPage++
		p = &ownPage{id: pageID{s.id, s.lastPage}, etcdLease: a, lock: make(chan struct{}, 1), members: map[int]*member{}}
		a.page = p
		s.pages[s.lastPage] = p
	}
	slot := p.nextSlot
	p.nextSlot++
	p.members[slot] = m
	a.users++
	s.setAlarm(p)
	return p, slot
}

// runs reports whether a lease may be alive: it has been granted, and nobody was told that it is over.
func (m *member) mayLive() bool { return !m.lapsed && !m.deadline.IsZero() }

// leave takes a lease off its page. The caller holds the mutex.
func (s *Store) leaveSlot(p *ownPage, slot int) {
	if p == nil || p.members[slot] == nil {
		return
	}
	p.members[slot].removed = true
	delete(p.members, slot)
	p.etcdLease.users--
	if p.nextSlot < pageSize || len(p.members) > 0 {
		return
	}
	p.stopAlarm()
	delete(s.pages, p.id.number)
	if p.written && !s.closed.Load() {
		s.done.Go(func() {
			ctx, cancel := context.WithTimeout(s.life, requestTimeout)
			defer cancel()
			_, _ = s.client.Delete(ctx, s.names.page(p.id)) // otherwise a sweep does it
		})
	}
}

// mine finds a lease on a page of this store. The caller holds the mutex.
func (s *Store) ownMember(d *storedRecord) (*ownPage, *member) {
	if d == nil || d.page.store != s.id {
		return nil, nil
	}
	p := s.pages[d.page.number]
	if p == nil {
		return nil, nil
	}
	m := p.members[d.slot]
	if m != nil && m.key != d.rec.Key { // a record that somebody has made up
		return nil, nil
	}
	return p, m
}

// content is what a page says at a moment, with some leases renewed then. The caller holds the mutex.
func (p *ownPage) content(s *Store, now time.Time, renewed map[int]time.Time) string {
	out := page{clock: s.domain, written: now, lease: p.etcdLease.id, renewed: make(map[int]time.Time, len(p.members)), over: map[int]bool{}}
	for slot, m := range p.members {
		if at, again := renewed[slot]; again {
			out.renewed[slot] = at
		} else if !m.renewed.IsZero() {
			out.renewed[slot] = m.renewed
		} else if m.bid != nil && !m.deadline.IsZero() && !now.Before(m.deadline) {
			out.over[slot] = true
		}
	}
	return out.encode()
}

// setAlarm wakes the page when the first lease on it may have lapsed. The caller holds the mutex.
func (s *Store) setAlarm(p *ownPage) {
	if p.alarm != nil || s.closed.Load() {
		return
	}
	var first time.Time
	for _, m := range p.members {
		if m.mayLive() && (first.IsZero() || m.deadline.Before(first)) {
			first = m.deadline
		}
	}
	if first.IsZero() {
		return
	}
	p.alarm = time.AfterFunc(max(first.Sub(s.now()), 0)+time.Millisecond, func() { s.background(func(ctx context.Context) { s.writeLapsed(ctx, p) }) })
}

// stop ends the alarm for good or until the next. The caller holds the mutex.
func (p *ownPage) stopAlarm() {
	if p.alarm != nil {
		p.alarm.Stop()
		p.alarm = nil
	}
}

// lapse tells others of leases that were not renewed: a page that was written after a lease's deadline, and does not renew it, says by its own clock that it is over. So a lease whose
// work has stalled leaves the anchor that the others keep alive.
func (s *Store) writeLapsed(ctx context.Context, p *ownPage) {
	select {
	case p.lock <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-p.lock }()
	s.mu.Lock()
	p.stopAlarm()
	now := s.now()
	var over []*member
	for _, m := range p.members {
		if m.mayLive() && !now.Before(m.deadline) {
			over = append(over, m)
		}
	}
	switch {
	case p.etcdLease.gone || p.etcdLease.remaining() <= 0: // nobody needs to be told: the live key is gone, too
		s.dropLease(p.etcdLease)
		s.mu.Unlock()
		return
	case len(over) == 0:
		s.setAlarm(p)
		s.mu.Unlock()
		return
	}
	put := clientv3.OpPut(s.names.page(p.id), p.content(s, now, nil))
	conditions := s.pageConditions(p.id, p.etcdLease, p.mod)
	look := []clientv3.Op{clientv3.OpGet(s.names.live(p.etcdLease.id), clientv3.WithKeysOnly()), clientv3.OpGet(s.names.page(p.id))}
	s.mu.Unlock()
	resp, err := s.txn(ctx, conditions, []clientv3.Op{put}, look)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil: // try again, until the anchor is over
		p.alarm = time.AfterFunc(time.Second, func() { s.background(func(ctx context.Context) { s.writeLapsed(ctx, p) }) })
	case resp.Succeeded:
		p.written, p.mod = true, resp.Header.Revision
		for _, m := range over {
			m.lapsed = !now.Before(m.deadline) // unless it was written anew meanwhile: whoever notes a renewal has the page's turn
		}
		s.setAlarm(p)
	default:
		s.reread(p, results(resp.Responses))
	}
}

// reread takes in a page that is not as this store wrote it last, as far as it knows: a writing without an answer has reached etcd, or a sweep has dropped it. The caller holds the mutex, and the page's turn.
func (s *Store) reread(p *ownPage, found [][]*mvccpb.KeyValue) {
	if len(found[0]) == 0 {
		s.dropLease(p.etcdLease)
		return
	}
	var there *page
	mod := int64(0)
	if len(found[1]) > 0 {
		mod = found[1][0].ModRevision
		there, _ = decodePage(string(found[1][0].Key), found[1][0].Value) // what cannot be read is written over: nobody else may write here
	}
	p.adopt(mod, there)
	s.setAlarm(p)
}

// learn notes what a page says in etcd. Renewals whose answers were lost have taken effect. The caller holds the store's mutex, and the page's turn.
func (p *ownPage) adopt(mod int64, there *page) {
	p.mod = mod
	if there == nil {
		return
	}
	p.written = true
	for slot, m := range p.members {
		if at := there.renewed[slot]; at.After(m.renewed) && at.Add(m.ttl).After(m.deadline) {
			m.renewed, m.deadline, m.lapsed = at, at.Add(m.ttl), false
		}
	}
}
