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
type lane struct {
	key      string
	requests []tenure.Request
	indexes  []int // in the batch
	answers  []store.Answer
	yields   int // how often it has left the key to another

	view *view // nil before anything is known
	sure bool  // the view was read for these very requests: what it refuses is refused
	// since is the revision at which the key was first read for these requests, and reads how often it was. A record that changes hands faster than it can be read with what it hangs on is fresh: its anchor lives, and hardly anybody has
	// renewed it yet. That is enough to refuse it; at the worst, the deadline that is told is too early.
	since int64
	reads int
	fresh bool

	// What was decided:
	step    step
	now     time.Time
	next    *deed     // to write
	anchor  *anchor   // that it will live on
	old     *deed     // what it replaces
	expired bool      // the law took the lease for over though its anchor may live: its page must not change meanwhile
	granted bool      // a new term begins
	stays   bool      // it goes on living where it does: the write is a report to another store's lease
	page    *openPage // where to note a renewal
	look    look
	asked   bool      // the write asks who is next in the queue
	seat    *openPage // reserved for the write: it is given up if that does not happen
	tied    bool
	plants  bool   // the write also plants the anchor's live key
	told    told   // who is woken by the write
	joins   *topic // the look also puts this store in the key's queue,
	stake   *stake // with a bid
	heir    *bid   // whom the key is granted to in the step that frees it
	forgoes bool   // that did not work
	leaves  bool   // the write also takes this store's own place off the queue
	number  int    // in its batch
	wary    bool   // it was sent together with others, and not carried out
	encoded string // what is to be written,
	shelf   string // and what to the shelf, if anything
}

// told is who is woken by a write.
type told int

const (
	toNobody told = iota
	toOne
	toAll
)

// value is the record to write.
func (l *lane) value() string {
	if l.encoded == "" {
		l.shelf = l.next.shelve()
		l.encoded = l.next.encode()
	}
	return l.encoded
}

// forHeir is the record that whoever waits is offered.
func (l *lane) forHeir() string {
	l.value() // it may go to the shelf
	return l.next.encodeWhole()
}

// decide applies the law to what is known and says what is to be done next. The answers are the caller's when it has been done.
func (s *Store) decide(l *lane) {
	l.next, l.anchor, l.page, l.asked, l.stays, l.told, l.encoded, l.shelf = nil, nil, nil, false, false, toNobody, "", ""
	l.joins, l.stake, l.heir, l.leaves = nil, nil, nil, false
	first := l.requests[0].Verb
	if l.view == nil && first != tenure.Acquire && !first.ByHand() || l.view != nil && !s.whole(l.view) && !(l.fresh && l.view.deed.complete() && first == tenure.Acquire) {
		l.step, l.look = looking, s.lookAt(l.key, l.view)
		return
	}
	v := l.view
	if v == nil {
		v = &view{} // most likely nothing is there
	}
	if first == tenure.Acquire && l.yields < mostYields && v.offered(s.id) { // that one has it by now, or in a moment: a write would only be in its way
		l.yields++
		l.step, l.look = looking, s.lookAt(l.key, v)
		return
	}
	l.now = s.now()
	rec := s.record(v, l.now)
	if v.deed != nil {
		rec = v.deed.forLaw(rec, l.requests)
	}
	cur, changed, renewals, reports := rec, false, true, true
	l.granted = false
	for i, req := range l.requests {
		next, did, err := tenure.Apply(cur, req, l.now)
		l.answers[i] = store.Answer{Record: next, Now: l.now, Err: err}
		if !did {
			continue
		}
		changed = true
		renewals = renewals && req.Verb == tenure.Renew && next.TTL == cur.TTL
		reports = reports && req.Verb == tenure.Report
		l.granted = l.granted || next.Token != cur.Token
		cur = next
	}
	if changed && l.fresh && !s.whole(v) {
		l.step, l.look, l.fresh = looking, s.lookAt(l.key, v), false
		return
	}
	if s.claim(l, v, changed) {
		return
	}
	if changed {
		cur, l.heir = s.bequeath(l, v, cur)
	}
	switch {
	case changed && renewals && rec.Alive(l.now) && s.onPage(l, v, cur):
		l.step = renewing
	case changed:
		l.step = writing
		l.old, l.next = v.deed, &deed{rec: cur, clock: s.domain, written: l.now}
		if v.deed != nil {
			l.next.shelved, l.next.older = v.deed.shelved, v.deed.older
		}
		if b := l.heir; b != nil {
			l.next.lease, l.next.page, l.next.slot = b.lease, b.page, b.slot
		}
		l.expired = rec.State == tenure.Held && !l.now.Before(rec.Deadline) && v.deed.lease != 0 && !v.gone && v.deed.page.store != 0
		l.view = v
		if reports && !s.isMine(v.deed) {
			l.stay()
		}
	case l.sure:
		l.step = finished
	default:
		l.step = looking
	}
	l.look = s.lookAt(l.key, v)
}

// stay leaves a lease that another store keeps where it is, and its deadline on the clock that it is on: a report moves neither.
func (l *lane) stay() {
	rec := l.next.rec
	*l.next = *l.old
	if v := l.view; v.page != nil && v.page.clock == l.old.clock && v.pageMod > v.mod {
		l.next.written = v.page.written // an older time would be taken for the clock's newest
	}
	rec.Renewed, rec.Deadline = l.old.rec.Renewed, l.old.rec.Deadline
	l.next.rec, l.stays = rec, true
}

// onPage reports whether a renewal needs no more than a note on the lease's page.
func (s *Store) onPage(l *lane, v *view, next tenure.Record) bool {
	if v.gone || v.deed.clock != s.domain || next.Renewed.Before(v.deed.rec.Renewed) || !next.Deadline.Equal(next.Renewed.Add(next.TTL)) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, m := s.mine(v.deed)
	if m == nil || p.anchor.gone || !p.anchor.planted || p.anchor.seconds != class(next.TTL) {
		return false
	}
	l.page, l.anchor = p, p.anchor
	return true
}

// settle gives a deed that is to be written its place: the anchor it lives on and the slot for its renewals. What it had it keeps, if that is good enough.
func (s *Store) settle(l *lane) {
	d := l.next
	l.seat, l.tied, l.plants = nil, false, false
	if l.anchor == nil {
		return
	}
	a := l.anchor
	s.mu.Lock()
	defer s.mu.Unlock()
	d.lease, l.plants = a.id, !a.planted
	if d.rec.State != tenure.Held {
		a.tied++
		l.tied = true
		return
	}
	seated := &member{key: d.rec.Key, ttl: d.rec.TTL, deadline: d.rec.Deadline}
	if p, m := s.mine(l.old); m != nil && !l.granted {
		setBack := d.rec.Renewed.Before(m.renewed) // the page would go on renewing it by the time that was
		if p.anchor == a && !setBack {
			d.page, d.slot = l.old.page, l.old.slot
			return
		}
		seated.heirs, seated.placed = m.heirs, m.placed // it has another TTL now, or another slot, and is otherwise as it was
	}
	l.seat, d.slot = s.seat(a, seated)
	d.page = l.seat.id
}

// unsettle gives up what was reserved for a write that did not happen. One of which nobody knows whether it did may be in etcd: then it hangs on a slot that is not renewed, and its anchor is not given back.
func (s *Store) unsettle(l *lane, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.seat != nil {
		s.leave(l.seat, l.next.slot)
	}
	if l.tied && known {
		l.anchor.tied--
	}
	if l.seat != nil && !known {
		l.anchor.tied++
	}
	l.seat, l.tied = nil, false
}

// compares are the conditions of a lane's write.
func (s *Store) compares(l *lane) []clientv3.Cmp {
	out := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.names.record(l.key)), "=", l.view.mod)}
	if l.heir != nil {
		return append(out, s.inherits(l.key, l.heir)...)
	}
	if l.next.lease != 0 && !l.plants {
		out = append(out, s.lives(l.next.lease))
	}
	if l.expired {
		mod := l.view.pageMod
		if l.old.page.store == s.id && !l.view.read {
			s.mu.Lock()
			if p, _ := s.mine(l.old); p != nil {
				mod = p.mod
			}
			s.mu.Unlock()
		}
		out = append(out, clientv3.Compare(clientv3.ModRevision(s.names.page(l.old.page)), "=", mod))
	}
	return out
}

// wrote takes note that a lane's deed is in etcd.
func (s *Store) wrote(l *lane, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, m := s.mine(l.old); m != nil && (l.old.page != l.next.page || l.old.slot != l.next.slot) {
		s.leave(p, l.old.slot)
	}
	if _, m := s.mine(l.next); m != nil {
		m.ttl, m.deadline, m.lapsed = l.next.rec.TTL, l.next.rec.Deadline, false
		m.stake = nil // it is on this store's clock now
	}
	s.remember(l.key, &view{mod: revision, asOf: revision, deed: l.next})
}

// renewed takes note that a lane's renewal is on its page.
func (s *Store) renewedOn(l *lane, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, m := s.mine(l.view.deed); m != nil {
		m.renewed, m.deadline, m.lapsed = at, at.Add(l.view.deed.rec.TTL), false
	}
}

// awaited notes in the answers to releases that another store waits for the key.
func (l *lane) awaited() {
	for i, req := range l.requests {
		if req.Verb == tenure.Release && l.answers[i].Err == nil {
			l.answers[i].Awaited = true
		}
	}
}

// finish makes the answers the caller's own: what the store remembers is not to be changed through them.
func (l *lane) finish() {
	for i := range l.answers {
		a := &l.answers[i]
		switch err := a.Err.(type) { //nolint:errorlint // the law's own
		case *tenure.NotOwnedError: // with its history, which says who ended the term
			err.Record = l.view.own(err.Record)
			a.Record = err.Record
		case *tenure.HeldError:
			err.Record = bare(err.Record)
			a.Record = err.Record
		default:
			a.Record = bare(a.Record)
		}
	}
	l.step = finished
}

// own is a record with all that is remembered of it, copied.
func (v *view) own(rec tenure.Record) tenure.Record {
	var older []tenure.Term
	if v.deed != nil {
		older = v.deed.older
	}
	rec.Guards, rec.History = slices.Clone(rec.Guards), joined(older, rec.History)
	return rec
}

// bare is a record without its history, which answers need not have.
func bare(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = nil, slices.Clone(rec.Guards)
	return rec
}

// fail ends a lane without an answer.
func (l *lane) fail(err error) {
	for i := range l.answers {
		l.answers[i] = store.Answer{Err: store.Unknown(err)}
	}
	l.step = finished
}
