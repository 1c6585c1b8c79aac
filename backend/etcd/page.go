package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
)

// pageSize is how many leases are on one page. One transaction renews all of
// them and compares each record. etcd takes 128 operations in a transaction.
const pageSize = 96

// notedFor returns for how long renewals are only noted on the page. Then the
// next one writes the record. The page is forgotten with its etcd lease. So the
// end of a dead store's lease is known only up to this time.
func (s *Store) notedFor() time.Duration { return min(time.Hour, s.retention) }

// ownPage is a page of this store. A renewal writes this one small etcd key
// instead of the records of all leases on it.
type ownPage struct {
	id        pageID
	etcdLease *etcdLease
	lock      chan struct{} // held while it is written

	// The store's mutex protects the rest.
	members map[uint64]*member // by the short form of the grant
	mod     int64              // mod_revision of its last write; 0 if there was none
	alarm   *time.Timer        // runs until the first deadline
}

// member is a lease on an own page, perhaps before its record is written.
type member struct {
	page     *ownPage
	key      string
	grant    fence.Grant
	ttl      time.Duration
	renewed  time.Time // by the page; zero if never since the record's write
	deadline time.Time
	lapsed   bool       // the page in etcd says that the lease is over
	next     successors // the queue when it was granted
}

// successors are the first two stores in the queue of a key. 0 is none.
type successors [2]identity

// addMember puts a lease on a page of its etcd lease that has room, except on
// one. The caller holds the mutex.
func (s *Store) addMember(a *etcdLease, m *member, except *ownPage) {
	for _, p := range a.pages {
		if len(p.members) < pageSize && p != except && p.members[short(m.grant)] == nil {
			m.page = p
		}
	}
	if m.page == nil {
		s.lastPage++
		m.page = &ownPage{
			id: pageID{s.id, s.lastPage}, etcdLease: a, lock: make(chan struct{}, 1), members: map[uint64]*member{},
		}
		a.pages = append(a.pages, m.page)
		s.pages[s.lastPage] = m.page
	}
	m.page.members[short(m.grant)] = m
	s.setAlarm(m.page)
}

// noted says that the page in etcd has a renewal. The caller holds the mutex.
func (m *member) noted(at time.Time) {
	m.renewed = later(at, m.renewed)
	m.deadline, m.lapsed = later(m.deadline, m.renewed.Add(m.ttl)), false
}

// removeMember takes a lease off its page. The caller holds the mutex.
func (s *Store) removeMember(m *member) {
	if m.page.members[short(m.grant)] == m {
		delete(m.page.members, short(m.grant))
	}
	if s.held[m.key] == m {
		delete(s.held, m.key)
	}
}

// memberOf returns the own lease that a stored record is about, or nil. The
// caller holds the mutex.
func (s *Store) memberOf(d *storedRecord) *member {
	if d == nil {
		return nil
	}
	if m := s.held[d.rec.Key]; m != nil && m.page.id == d.page && m.grant == d.rec.Grant && carried(&d.rec) {
		return m
	}
	return nil
}

func (s *Store) isOwn(d *storedRecord) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memberOf(d) != nil
}

// content returns the packed page, with the given renewals. The caller holds
// the mutex.
func (p *ownPage) content(now time.Time, renewed map[uint64]time.Time) string {
	out := page{written: now, renewed: make(map[uint64]time.Time, len(p.members))}
	for grant, m := range p.members {
		if at, again := renewed[grant]; again {
			out.renewed[grant] = at
		} else if !m.renewed.IsZero() {
			out.renewed[grant] = m.renewed
		}
	}
	return out.encode()
}

// put returns the operation that writes a page.
func (s *Store) put(p *ownPage, content string) clientv3.Op {
	return clientv3.OpPut(s.names.page(p.id), content, clientv3.WithLease(p.etcdLease.id))
}

// unchanged is the condition of every write of a page: it is as this store
// wrote it last. So a write that arrives late cannot undo a renewal that was
// confirmed after it.
func (s *Store) unchanged(p *ownPage) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.names.page(p.id)), "=", p.mod)
}

// setAlarm starts a timer for the earliest deadline on the page, unless one is
// running. The caller holds the mutex.
func (s *Store) setAlarm(p *ownPage) {
	if p.alarm != nil || s.closed.Load() {
		return
	}
	var first time.Time
	for _, m := range p.members {
		if !m.lapsed && (first.IsZero() || m.deadline.Before(first)) {
			first = m.deadline
		}
	}
	if !first.IsZero() {
		s.setAlarmIn(p, max(first.Sub(s.now()), 0)+time.Millisecond)
	}
}

func (s *Store) setAlarmIn(p *ownPage, d time.Duration) {
	p.alarm = time.AfterFunc(d, func() {
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
		if !m.lapsed && !now.Before(m.deadline) {
			over = append(over, m)
		}
	}
	switch {
	case p.etcdLease.gone || p.etcdLease.remaining() <= 0:
		s.dropLease(p.etcdLease) // the page is gone, too
		s.mu.Unlock()
		return
	case len(over) == 0:
		s.setAlarm(p)
		s.mu.Unlock()
		return
	}
	same, put := s.unchanged(p), s.put(p, p.content(now, nil))
	s.mu.Unlock()
	resp, err := s.txn(ctx, []clientv3.Cmp{same}, []clientv3.Op{put}, []clientv3.Op{clientv3.OpGet(s.names.page(p.id))})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case leaseGone(err):
		s.dropLease(p.etcdLease)
	case err != nil:
		s.setAlarmIn(p, time.Second) // try again, until the etcd lease is over
	case resp.Succeeded:
		p.mod = resp.Header.Revision
		for _, m := range over {
			// Its record may have been written anew meanwhile. A renewal cannot
			// have been noted: that needs the page's lock.
			m.lapsed = !now.Before(m.deadline)
		}
		s.setAlarm(p)
	default:
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			s.dropLease(p.etcdLease)
			return
		}
		// A damaged page is overwritten: no other store may write here.
		there, _ := decodePage(string(kvs[0].Key), kvs[0].Value)
		p.adopt(kvs[0].ModRevision, there)
		s.setAlarm(p)
	}
}

// adopt takes over the revision and the renewals of a page in etcd. Renewals
// whose answers were lost have taken effect. The caller holds the store's mutex
// and the page's lock.
func (p *ownPage) adopt(mod int64, there *page) {
	p.mod = mod
	if there == nil {
		return
	}
	for grant, m := range p.members {
		if at := there.renewed[grant]; at.After(m.renewed) && at.Add(m.ttl).After(m.deadline) {
			m.renewed, m.deadline, m.lapsed = at, at.Add(m.ttl), false
		}
	}
}
