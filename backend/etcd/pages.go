package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is how many leases have their renewals on one page. One transaction
// renews all of them and compares each record. etcd takes 128 operations in a
// transaction.
const pageSize = 96

// ownPage is a page of this store. A renewal writes this one small etcd key
// instead of the records of all leases on it.
type ownPage struct {
	id        pageID
	etcdLease *etcdLease
	lock      chan struct{} // held while it is written

	// The store's mutex protects the rest.
	nextSlot int // none is given out twice
	members  map[int]*member
	written  bool  // it exists in etcd
	mod      int64 // mod_revision of its last write
	alarm    *time.Timer
}

// member is a lease whose renewals are on a page, or a bid for which the slot
// is reserved. The deadline of a bid is zero, unless it is uncertain.
type member struct {
	key      string
	renewed  time.Time // by the page; zero if never since the record's write
	ttl      time.Duration
	deadline time.Time
	lapsed   bool       // the page in etcd says that the lease is over
	next     successors // which stores get the key when it is freed

	bid       *ownBid       // the bid, also after its award
	inQueue   bool          // the queue entry of the bid still exists
	queueRead chan struct{} // closed after the first read of the queue; or nil
	removed   bool          // it has left its slot
}

// takeSlot gives a lease a slot on a page of an etcd lease. The caller holds
// the mutex.
func (s *Store) takeSlot(a *etcdLease, m *member) (*ownPage, int) {
	p := a.page
	if p == nil || p.nextSlot == pageSize {
		s.lastPage++
		p = &ownPage{
			id: pageID{s.id, s.lastPage}, etcdLease: a,
			lock: make(chan struct{}, 1), members: map[int]*member{},
		}
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

// mayLive reports whether a lease may be alive: it was granted, and its page
// does not say that it is over.
func (m *member) mayLive() bool { return !m.lapsed && !m.deadline.IsZero() }

// leaveSlot takes a lease off its page. If the page is used up and empty, it is
// deleted. The caller holds the mutex.
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
			// If this fails, a sweep deletes it.
			_, _ = s.client.Delete(ctx, s.names.page(p.id))
		})
	}
}

// ownMember returns the own page and member of a stored record, or nil. The
// caller holds the mutex.
func (s *Store) ownMember(d *storedRecord) (*ownPage, *member) {
	if d == nil || d.page.store != s.id {
		return nil, nil
	}
	p := s.pages[d.page.number]
	if p == nil {
		return nil, nil
	}
	m := p.members[d.slot]
	if m != nil && m.key != d.rec.Key { // somebody else has made up this record
		return nil, nil
	}
	return p, m
}

// content returns the packed page, with the given renewals by slot. The caller
// holds the mutex.
func (p *ownPage) content(s *Store, now time.Time, renewed map[int]time.Time) string {
	out := page{
		clock: s.domain, written: now, lease: p.etcdLease.id,
		renewed: make(map[int]time.Time, len(p.members)), over: map[int]bool{},
	}
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

// setAlarm starts a timer for the earliest deadline on the page, unless one is
// running. The caller holds the mutex.
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
	p.alarm = time.AfterFunc(max(first.Sub(s.now()), 0)+time.Millisecond, func() {
		s.background(func(ctx context.Context) { s.writeLapsed(ctx, p) })
	})
}

// stopAlarm stops the timer. The caller holds the mutex.
func (p *ownPage) stopAlarm() {
	if p.alarm != nil {
		p.alarm.Stop()
		p.alarm = nil
	}
}

// writeLapsed writes a page on which leases were not renewed in time. A page
// that was written after a lease's deadline, and does not renew the lease, says
// by its own clock that the lease is over. So a stalled lease ends although
// others keep the etcd lease alive.
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
	case p.etcdLease.gone || p.etcdLease.remaining() <= 0:
		// The live key is gone, too, so nobody needs the page.
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
	look := []clientv3.Op{
		clientv3.OpGet(s.names.live(p.etcdLease.id), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.names.page(p.id)),
	}
	s.mu.Unlock()
	resp, err := s.txn(ctx, conditions, []clientv3.Op{put}, look)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil: // try again, until the etcd lease is over
		p.alarm = time.AfterFunc(time.Second, func() {
			s.background(func(ctx context.Context) { s.writeLapsed(ctx, p) })
		})
	case resp.Succeeded:
		p.written, p.mod = true, resp.Header.Revision
		for _, m := range over {
			// Its record may have been written anew meanwhile. A renewal cannot
			// have been noted: that needs the page's lock.
			m.lapsed = !now.Before(m.deadline)
		}
		s.setAlarm(p)
	default:
		s.reread(p, results(resp.Responses))
	}
}

// reread takes over a page that is not as this store wrote it last. Either an
// unanswered write has reached etcd, or a sweep has deleted the page. The
// caller holds the mutex and the page's lock.
func (s *Store) reread(p *ownPage, found [][]*mvccpb.KeyValue) {
	if len(found[0]) == 0 {
		s.dropLease(p.etcdLease)
		return
	}
	var there *page
	mod := int64(0)
	if len(found[1]) > 0 {
		mod = found[1][0].ModRevision
		// A damaged page is overwritten: no other store may write here.
		there, _ = decodePage(string(found[1][0].Key), found[1][0].Value)
	}
	p.adopt(mod, there)
	s.setAlarm(p)
}

// adopt takes over the revision and the renewals of a page in etcd. Renewals
// whose answers were lost have taken effect. The caller holds the store's mutex
// and the page's lock.
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
