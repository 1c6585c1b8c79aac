package etcd

import (
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// step is what a group does next.
type step int

const (
	looking  step = iota // read the key
	writing              // replace the record, if it is unchanged
	renewing             // note a renewal on the page, if the record is unchanged
	finished
)

// group is the requests of one call on one key, in their order, and their
// answers. They take effect together or not at all.
type group struct {
	key      string
	requests []tenure.Request
	indexes  []int // in the call
	answers  []store.Answer
	yields   int // how often it left the key to another store

	view      *view // nil if nothing is known of the key
	confirmed bool  // the view was read for these requests, so a refusal counts
	// firstRead is the revision at which the key was first read for these
	// requests; reads counts the readings. A key is busy if its record changes
	// faster than the record can be read together with its page. Such a record
	// is new: its etcd lease lives, and it was hardly renewed. That is enough
	// to refuse an acquire. At worst, the reported deadline is too early.
	firstRead int64
	reads     int
	busy      bool

	// The rest is what decide and later steps have decided.
	step      step
	now       time.Time
	next      *storedRecord // the record to write,
	etcdLease *etcdLease    // the etcd lease that will carry it,
	old       *storedRecord // and the record that it replaces
	// expired says that by the law the lease is over, though its etcd lease may
	// live. The write has the condition that its page is unchanged.
	expired     bool
	granted     bool     // a new term begins
	keepsLease  bool     // a report: the lease stays with the other store
	page        *ownPage // where to note a renewal
	lookup      lookup
	readsQueue  bool     // the write also reads who is next
	reserved    *ownPage // the page with a slot that was reserved for the write
	counted     bool     // the write counts as a user of etcdLease
	putsLiveKey bool     // the write also puts the live key
	wakes       wake     // which waiting stores the write wakes
	joins       *topic   // the lookup also puts this store into the queue,
	bid         *ownBid  // with this bid
	awardTo     *bid     // the release awards the key to this bid
	noAward     bool     // an award was tried and failed
	leavesQueue bool     // the write also deletes the own queue entry
	number      int      // in its batch
	sentJoint   bool     // it was last sent in a joint batch
	encoded     string   // next, packed,
	shelf       string   // and its shelf, if that is written, too
}

// wake says which waiting stores a write wakes.
type wake int

const (
	wakeNobody wake = iota
	wakeFirst
	wakeAll
)

// value returns the packed record to write. It decides first whether older
// history moves to the shelf.
func (g *group) value() string {
	if g.encoded == "" {
		g.shelf = g.next.shelve()
		g.encoded = g.next.encode()
	}
	return g.encoded
}

// valueForSuccessor returns the record with all its history, for the queue
// entry of the store that is offered or awarded the key.
func (g *group) valueForSuccessor() string {
	g.value() // may move history to the shelf
	return g.next.encodeWhole()
}

// decide applies the law to the view, fills in the answers, and sets the
// group's next step. The answers count once that step has succeeded.
func (s *Store) decide(g *group) {
	g.next, g.etcdLease, g.page, g.readsQueue, g.keepsLease = nil, nil, nil, false, false
	g.wakes, g.encoded, g.shelf = wakeNobody, "", ""
	g.joins, g.bid, g.awardTo, g.leavesQueue = nil, nil, nil, false
	first := g.requests[0].Verb
	if g.view == nil && first != tenure.Acquire && !first.ByHand() ||
		g.view != nil && !s.isComplete(g.view) &&
			!(g.busy && g.view.stored.complete() && first == tenure.Acquire) {
		g.step, g.lookup = looking, s.lookupFor(g.key, g.view)
		return
	}
	v := g.view
	if v == nil {
		v = &view{} // most likely the key has no record
	}
	if first == tenure.Acquire && g.yields < maxYields && v.offeredElsewhere(s.id) {
		// The other store takes the key about now. A write would disturb it.
		g.yields++
		g.step, g.lookup = looking, s.lookupFor(g.key, v)
		return
	}
	g.now = s.now()
	rec := s.record(v, g.now)
	if v.stored != nil {
		rec = v.stored.withShelfFor(rec, g.requests)
	}
	cur, changed, renewals, reports := rec, false, true, true
	g.granted = false
	for i, req := range g.requests {
		next, did, err := tenure.Apply(cur, req, g.now)
		g.answers[i] = store.Answer{Record: next, Now: g.now, Err: err}
		if !did {
			continue
		}
		changed = true
		renewals = renewals && req.Verb == tenure.Renew && next.TTL == cur.TTL
		reports = reports && req.Verb == tenure.Report
		g.granted = g.granted || next.Token != cur.Token
		cur = next
	}
	if changed && g.busy && !s.isComplete(v) {
		g.step, g.lookup, g.busy = looking, s.lookupFor(g.key, v), false
		return
	}
	if s.claimAward(g, v, changed) {
		return
	}
	if changed {
		cur, g.awardTo = s.awardFreed(g, v, cur)
	}
	switch {
	case changed && renewals && rec.Alive(g.now) && s.canNoteRenewal(g, v, cur):
		g.step = renewing
	case changed:
		g.step = writing
		g.old, g.next = v.stored, &storedRecord{rec: cur, clock: s.domain, written: g.now}
		if v.stored != nil {
			g.next.shelved, g.next.older = v.stored.shelved, v.stored.older
		}
		if b := g.awardTo; b != nil {
			g.next.lease, g.next.page, g.next.slot = b.lease, b.page, b.slot
		}
		g.expired = rec.State == tenure.Held && !g.now.Before(rec.Deadline) &&
			v.stored.lease != 0 && !v.leaseGone && v.stored.page.store != 0
		g.view = v
		if reports && !s.isOwn(v.stored) {
			g.keepLease()
		}
	case g.confirmed:
		g.step = finished
	default:
		g.step = looking
	}
	g.lookup = s.lookupFor(g.key, v)
}

// keepLease leaves the lease of another store on its etcd lease, its slot and
// its clock. A progress report changes none of them.
func (g *group) keepLease() {
	rec := g.next.rec
	*g.next = *g.old
	if v := g.view; v.page != nil && v.page.clock == g.old.clock && v.pageMod > v.mod {
		g.next.written = v.page.written // an older time would seem the clock's newest
	}
	rec.Renewed, rec.Deadline = g.old.rec.Renewed, g.old.rec.Deadline
	g.next.rec, g.keepsLease = rec, true
}

// canNoteRenewal reports whether writing the page is enough for a renewal. If
// so, it sets the group's page and etcd lease.
func (s *Store) canNoteRenewal(g *group, v *view, next tenure.Record) bool {
	if v.leaseGone || v.stored.clock != s.domain || next.Renewed.Before(v.stored.rec.Renewed) ||
		!next.Deadline.Equal(next.Renewed.Add(next.TTL)) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, m := s.ownMember(v.stored)
	if m == nil || p.etcdLease.gone || !p.etcdLease.hasLiveKey || p.etcdLease.seconds != leaseSeconds(next.TTL) {
		return false
	}
	g.page, g.etcdLease = p, p.etcdLease
	return true
}

// reserveSlot gives a record that is to be written its etcd lease and a slot
// for its renewals. The record keeps its old slot if that still fits.
func (s *Store) reserveSlot(g *group) {
	d := g.next
	g.reserved, g.counted, g.putsLiveKey = nil, false, false
	if g.etcdLease == nil {
		return
	}
	a := g.etcdLease
	s.mu.Lock()
	defer s.mu.Unlock()
	d.lease, g.putsLiveKey = a.id, !a.hasLiveKey
	if d.rec.State != tenure.Held {
		a.users++
		g.counted = true
		return
	}
	added := &member{key: d.rec.Key, ttl: d.rec.TTL, deadline: d.rec.Deadline}
	if p, m := s.ownMember(g.old); m != nil && !g.granted {
		// The clock was set back, and the page has a later renewal.
		setBack := d.rec.Renewed.Before(m.renewed)
		if p.etcdLease == a && !setBack {
			d.page, d.slot = g.old.page, g.old.slot
			return
		}
		// It has another TTL or slot now, but the queue is the same.
		added.next, added.inQueue = m.next, m.inQueue
	}
	g.reserved, d.slot = s.takeSlot(a, added)
	d.page = g.reserved.id
}

// freeReserved gives up the slot of a write that failed. If the write certainly
// did not happen (known), nothing remains. Otherwise the record may be in etcd,
// on a slot that nobody renews. Then its etcd lease still counts a user, so
// that Close does not revoke it.
func (s *Store) freeReserved(g *group, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.reserved != nil {
		s.leaveSlot(g.reserved, g.next.slot)
	}
	if g.counted && known {
		g.etcdLease.users--
	}
	if g.reserved != nil && !known {
		g.etcdLease.users++
	}
	g.reserved, g.counted = nil, false
}

// conditions returns the conditions of a group's write.
func (s *Store) conditions(g *group) []clientv3.Cmp {
	out := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.names.record(g.key)), "=", g.view.mod)}
	if g.awardTo != nil {
		return append(out, s.bidConditions(g.key, g.awardTo)...)
	}
	if g.next.lease != 0 && !g.putsLiveKey {
		out = append(out, s.liveKeyExists(g.next.lease))
	}
	if g.expired {
		mod := g.view.pageMod
		if g.old.page.store == s.id && !g.view.leaseRead {
			s.mu.Lock()
			if p, _ := s.ownMember(g.old); p != nil {
				mod = p.mod
			}
			s.mu.Unlock()
		}
		out = append(out, clientv3.Compare(clientv3.ModRevision(s.names.page(g.old.page)), "=", mod))
	}
	return out
}

// wrote notes that a group's record is in etcd.
func (s *Store) wrote(g *group, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, m := s.ownMember(g.old); m != nil && (g.old.page != g.next.page || g.old.slot != g.next.slot) {
		s.leaveSlot(p, g.old.slot)
	}
	if _, m := s.ownMember(g.next); m != nil {
		m.ttl, m.deadline, m.lapsed = g.next.rec.TTL, g.next.rec.Deadline, false
		m.bid = nil // its deadline is on this store's clock now
	}
	s.addView(g.key, &view{mod: revision, asOf: revision, stored: g.next})
}

// renewedOn notes that a group's renewal is on its page.
func (s *Store) renewedOn(g *group, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, m := s.ownMember(g.view.stored); m != nil {
		m.renewed, m.deadline, m.lapsed = at, at.Add(g.view.stored.rec.TTL), false
	}
}

// markAwaited notes in the answers to releases that another store waits for the
// key.
func (g *group) markAwaited() {
	for i, req := range g.requests {
		if req.Verb == tenure.Release && g.answers[i].Err == nil {
			g.answers[i].Awaited = true
		}
	}
}

// finish copies the records in the answers, so that the caller cannot change
// the cache through them. It leaves out histories that the caller does not
// need.
func (g *group) finish() {
	for i := range g.answers {
		a := &g.answers[i]
		switch err := a.Err.(type) { //nolint:errorlint // the law's own
		case *tenure.NotOwnedError: // its history says who ended the term
			err.Record = g.view.withHistory(err.Record)
			a.Record = err.Record
		case *tenure.HeldError:
			err.Record = withoutHistory(err.Record)
			a.Record = err.Record
		default:
			a.Record = withoutHistory(a.Record)
		}
	}
	g.step = finished
}

// withHistory returns a copy of rec with its whole known history.
func (v *view) withHistory(rec tenure.Record) tenure.Record {
	var older []tenure.Term
	if v.stored != nil {
		older = v.stored.older
	}
	rec.Guards, rec.History = slices.Clone(rec.Guards), joinHistory(older, rec.History)
	return rec
}

// withoutHistory returns a copy of rec without its history.
func withoutHistory(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = nil, slices.Clone(rec.Guards)
	return rec
}

// fail ends a group: the outcome of its requests is unknown because of err.
func (g *group) fail(err error) {
	for i := range g.answers {
		g.answers[i] = store.Answer{Err: store.Unknown(err)}
	}
	g.step = finished
}
