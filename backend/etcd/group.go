package etcd

import (
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// step is what a lane does next.
type step int

const (
	looking  step = iota // read the key
	writing              // replace its record, if it is still as it was seen
	renewing             // note a renewal on its page, if the record is still as it was seen
	finished
)

// lane is the requests of a batch on one key, in their order, and what has come of them. They are carried out in one step.
type group struct {
	key      string
	requests []tenure.Request
	indexes  []int // in the batch
	answers  []store.Answer
	yields   int // how often it has left the key to another

	view      *view // nil before anything is known
	confirmed bool  // the view was read for these very requests: what it refuses is refused
	// since is the revision at which the key was first read for these requests, and reads how often it was. A record that changes hands faster than it can be read with what it hangs on is fresh: its anchor lives, and hardly anybody has
	// renewed it yet. That is enough to refuse it; at the worst, the deadline that is told is too early.
	firstRead int64
	reads     int
	busy      bool

	// What was decided:
	step        step
	now         time.Time
	next        *storedRecord // to write
	etcdLease   *etcdLease    // that it will live on
	old         *storedRecord // what it replaces
	expired     bool          // the law took the lease for over though its anchor may live: its page must not change meanwhile
	granted     bool          // a new term begins
	keepsLease  bool          // it goes on living where it does: the write is a report to another store's lease
	page        *ownPage      // where to note a renewal
	lookup      lookup
	readsQueue  bool     // the write asks who is next in the queue
	reserved    *ownPage // reserved for the write: it is given up if that does not happen
	counted     bool
	putsLiveKey bool    // the write also plants the anchor's live key
	wakes       wake    // who is woken by the write
	joins       *topic  // the look also puts this store in the key's queue,
	bid         *ownBid // with a bid
	awardTo     *bid    // whom the key is granted to in the step that frees it
	noAward     bool    // that did not work
	leavesQueue bool    // the write also takes this store's own place off the queue
	number      int     // in its batch
	sentJoint   bool    // it was sent together with others, and not carried out
	encoded     string  // what is to be written,
	shelf       string  // and what to the shelf, if anything
}

// told is who is woken by a write.
type wake int

const (
	wakeNobody wake = iota
	wakeFirst
	wakeAll
)

// value is the record to write.
func (g *group) value() string {
	if g.encoded == "" {
		g.shelf = g.next.shelve()
		g.encoded = g.next.encode()
	}
	return g.encoded
}

// forHeir is the record that whoever waits is offered.
func (g *group) valueForSuccessor() string {
	g.value() // it may go to the shelf
	return g.next.encodeWhole()
}

// decide applies the law to what is known and says what is to be done next. The answers are the caller's when it has been done.
func (s *Store) decide(g *group) {
	g.next, g.etcdLease, g.page, g.readsQueue, g.keepsLease, g.wakes, g.encoded, g.shelf = nil, nil, nil, false, false, wakeNobody, "", ""
	g.joins, g.bid, g.awardTo, g.leavesQueue = nil, nil, nil, false
	first := g.requests[0].Verb
	if g.view == nil && first != tenure.Acquire && !first.ByHand() || g.view != nil && !s.isComplete(g.view) && !(g.busy && g.view.stored.complete() && first == tenure.Acquire) {
		g.step, g.lookup = looking, s.lookupFor(g.key, g.view)
		return
	}
	v := g.view
	if v == nil {
		v = &view{} // most likely nothing is there
	}
	if first == tenure.Acquire && g.yields < maxYields && v.offeredElsewhere(s.id) { // that one has it by now, or in a moment: a write would only be in its way
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
		g.expired = rec.State == tenure.Held && !g.now.Before(rec.Deadline) && v.stored.lease != 0 && !v.leaseGone && v.stored.page.store != 0
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

// stay leaves a lease that another store keeps where it is, and its deadline on the clock that it is on: a report moves neither.
func (g *group) keepLease() {
	rec := g.next.rec
	*g.next = *g.old
	if v := g.view; v.page != nil && v.page.clock == g.old.clock && v.pageMod > v.mod {
		g.next.written = v.page.written // an older time would be taken for the clock's newest
	}
	rec.Renewed, rec.Deadline = g.old.rec.Renewed, g.old.rec.Deadline
	g.next.rec, g.keepsLease = rec, true
}

// onPage reports whether a renewal needs no more than a note on the lease's page.
func (s *Store) canNoteRenewal(g *group, v *view, next tenure.Record) bool {
	if v.leaseGone || v.stored.clock != s.domain || next.Renewed.Before(v.stored.rec.Renewed) || !next.Deadline.Equal(next.Renewed.Add(next.TTL)) {
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

// settle gives a deed that is to be written its place: the anchor it lives on and the slot for its renewals. What it had it keeps, if that is good enough.
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
	seated := &member{key: d.rec.Key, ttl: d.rec.TTL, deadline: d.rec.Deadline}
	if p, m := s.ownMember(g.old); m != nil && !g.granted {
		setBack := d.rec.Renewed.Before(m.renewed) // the page would go on renewing it by the time that was
		if p.etcdLease == a && !setBack {
			d.page, d.slot = g.old.page, g.old.slot
			return
		}
		seated.next, seated.inQueue = m.next, m.inQueue // it has another TTL now, or another slot, and is otherwise as it was
	}
	g.reserved, d.slot = s.takeSlot(a, seated)
	d.page = g.reserved.id
}

// unsettle gives up what was reserved for a write that did not happen. One of which nobody knows whether it did may be in etcd: then it hangs on a slot that is not renewed, and its anchor is not given back.
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

// compares are the conditions of a lane's write.
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

// wrote takes note that a lane's deed is in etcd.
func (s *Store) wrote(g *group, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, m := s.ownMember(g.old); m != nil && (g.old.page != g.next.page || g.old.slot != g.next.slot) {
		s.leaveSlot(p, g.old.slot)
	}
	if _, m := s.ownMember(g.next); m != nil {
		m.ttl, m.deadline, m.lapsed = g.next.rec.TTL, g.next.rec.Deadline, false
		m.bid = nil // it is on this store's clock now
	}
	s.addView(g.key, &view{mod: revision, asOf: revision, stored: g.next})
}

// renewed takes note that a lane's renewal is on its page.
func (s *Store) renewedOn(g *group, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, m := s.ownMember(g.view.stored); m != nil {
		m.renewed, m.deadline, m.lapsed = at, at.Add(g.view.stored.rec.TTL), false
	}
}

// awaited notes in the answers to releases that another store waits for the key.
func (g *group) markAwaited() {
	for i, req := range g.requests {
		if req.Verb == tenure.Release && g.answers[i].Err == nil {
			g.answers[i].Awaited = true
		}
	}
}

// finish makes the answers the caller's own: what the store remembers is not to be changed through them.
func (g *group) finish() {
	for i := range g.answers {
		a := &g.answers[i]
		switch err := a.Err.(type) { //nolint:errorlint // the law's own
		case *tenure.NotOwnedError: // with its history, which says who ended the term
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

// own is a record with all that is remembered of it, copied.
func (v *view) withHistory(rec tenure.Record) tenure.Record {
	var older []tenure.Term
	if v.stored != nil {
		older = v.stored.older
	}
	rec.Guards, rec.History = slices.Clone(rec.Guards), joinHistory(older, rec.History)
	return rec
}

// bare is a record without its history, which answers need not have.
func withoutHistory(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = nil, slices.Clone(rec.Guards)
	return rec
}

// fail ends a lane without an answer.
func (g *group) fail(err error) {
	for i := range g.answers {
		g.answers[i] = store.Answer{Err: store.Unknown(err)}
	}
	g.step = finished
}
