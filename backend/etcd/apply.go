package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Apply carries out requests. One transaction takes up to a hundred keys;
// larger calls send several at a time. A key that this store holds, or has seen
// freed, is changed in one round trip. If a key has changed since it was last
// seen, the answer brings its newer state, and Apply decides again.
//
// If ctx ends, the answers are unknown. A request may still take effect after
// Apply has returned. The law makes sending it again safe.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	ctx = failFast(ctx)
	answers := make([]store.Answer, len(requests))
	groups := split(requests, answers)
	if len(groups) == 0 {
		return answers
	}
	// Count the call before looking at closed. Close sets closed before it
	// looks at the count.
	s.calls.Add(1)
	defer s.calls.Add(-1)
	if err := s.usable(ctx); err != nil {
		fail(groups, err)
	} else {
		s.carryOut(ctx, groups)
	}
	for _, g := range groups {
		for k, i := range g.indexes {
			answers[i] = g.answers[k]
		}
	}
	return answers
}

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

	view  *view // nil if nothing is known of the key
	fresh bool  // the view was read for these requests, so a refusal counts
	// firstRead is the revision at which the key was first read for these
	// requests.
	firstRead int64
	enters    bool  // reading the key also puts this store into its queue
	entered   bool  // it has done so
	yields    int   // how often it has left the key to another store,
	yielded   int64 // and the revision of the record that it leaves no longer

	// The rest is what decide and later steps have decided.
	step      step
	now       time.Time
	granted   bool          // a new term begins
	next      *storedRecord // the record to write,
	etcdLease *etcdLease    // and the etcd lease that will carry it
	// expired says that by the law the lease is over.
	expired bool
	member  *member  // the member of a page that was reserved for the write
	creates *ownPage // that page, if it does not exist yet
	renewed *member  // the lease to renew
	ops     operations
}

// split divides requests into groups by key. It answers invalid requests.
func split(requests []tenure.Request, answers []store.Answer) (groups []*group) {
	byKey := make(map[string]*group, len(requests))
	for i := range requests {
		req := &requests[i]
		if err := req.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		g := byKey[req.Key]
		if g == nil {
			g = &group{key: req.Key}
			byKey[req.Key] = g
			groups = append(groups, g)
		}
		g.requests, g.indexes = append(g.requests, *req), append(g.indexes, i)
		g.answers = append(g.answers, store.Answer{})
	}
	return groups
}

// carryOut works on groups, round by round, until all are finished.
func (s *Store) carryOut(ctx context.Context, groups []*group) {
	groups = slices.Clone(groups)
	for _, g := range groups {
		g.view = s.cached(g.key)
	}
	for round := 0; ; round++ {
		for _, g := range groups {
			s.decide(g)
			if g.step == finished {
				if err := s.ensureHeld(ctx, g); err != nil {
					fail([]*group{g}, err)
					continue
				}
				s.finish(g)
			}
		}
		groups = slices.DeleteFunc(groups, func(g *group) bool { return g.step == finished })
		if len(groups) == 0 {
			return
		}
		if err := pause(ctx, round); err != nil {
			fail(groups, err)
			return
		}
		if err := s.yield(ctx, groups); err != nil {
			fail(groups, err)
			return
		}
		var all sync.WaitGroup
		batches := s.batches(s.extendAll(ctx, groups))
		for i, b := range batches {
			if i == len(batches)-1 {
				s.send(ctx, b)
			} else {
				all.Go(func() { s.send(ctx, b) })
			}
		}
		all.Wait()
		groups = slices.DeleteFunc(groups, func(g *group) bool { return g.step == finished })
	}
}

// An acquire leaves a freed key to the store that is named in its record: for
// headStart, then for twice as long, and so on.
const (
	headStart = 2 * time.Millisecond
	maxYields = 3
)

// pause waits before a round. There is no pause before the first four rounds.
// Later pauses are short and random, so that contenders do not meet again and
// again.
func pause(ctx context.Context, round int) error {
	if ctx.Err() != nil {
		return wait.Ended(ctx)
	}
	if round < 4 {
		return nil
	}
	return clock.Sleep(ctx, rand.N(min(time.Millisecond<<min(round-4, 6), 50*time.Millisecond)))
}

// decide applies the law to the view, fills in the answers, and sets the
// group's next step. The answers count once that step has succeeded.
func (s *Store) decide(g *group) {
	g.step, g.next, g.etcdLease, g.member, g.creates, g.renewed = looking, nil, nil, nil, nil, nil
	g.enters = false
	v := g.view
	if v == nil && g.requests[0].Verb == tenure.Acquire {
		v = &view{} // most likely the key has no record
	}
	if v == nil || !s.isComplete(v) && !g.isNew(v) || s.isNamedElsewhere(g, v) {
		s.willLook(g)
		return
	}
	g.now = s.now()
	rec := s.record(v, g.now)
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
		reports = reports && (req.Verb == tenure.Report || req.Verb == tenure.Checkpoint)
		g.granted = g.granted || next.Token != cur.Token
		cur = next
	}
	switch {
	case !changed && g.fresh:
		g.step = finished
		return
	case !changed, !s.isComplete(v):
		s.willLook(g)
		return
	case renewals && rec.Alive(g.now) && s.canNoteRenewal(g, v, cur):
		g.step = renewing
		return
	}
	g.step, g.view = writing, v
	g.next = &storedRecord{rec: cur, clock: s.domain, written: g.now}
	g.expired = carried(&rec) && !g.now.Before(rec.Deadline)
	if reports && !s.isOwn(v.stored) {
		g.keepLease()
	} else if carried(&cur) {
		g.etcdLease = s.etcdLeaseFor(leaseSeconds(max(cur.TTL, cur.Deadline.Sub(g.now))))
	}
}

// isNew reports whether a record was written since its key was first read for
// these requests. Then its page existed meanwhile, which is enough to refuse an
// acquire. A key may change faster than its record and page can be read.
func (g *group) isNew(v *view) bool { return g.fresh && v.mod > g.firstRead && carried(&v.stored.rec) }

// willLook makes an acquire enter the key's queue when it reads the key, if
// callers of this store wait for the key.
func (s *Store) willLook(g *group) {
	if g.requests[0].Verb == tenure.Acquire && !g.entered && s.hub.Watches(g.key) && !s.hub.Queued(g.key) {
		g.enters, g.etcdLease = true, s.etcdLeaseFor(leaseSeconds(s.queueTTL))
	}
}

// isNamedElsewhere reports whether an acquire finds a freed key that another
// store is about to take. A write would only disturb it.
func (s *Store) isNamedElsewhere(g *group, v *view) bool {
	return g.requests[0].Verb == tenure.Acquire && v.stored != nil && v.stored.rec.State == tenure.Free &&
		v.stored.named != 0 && v.stored.named != s.id && v.mod != g.yielded
}

// yield waits for a moment if another store is about to take a key, as the last
// read has shown. The first read is made at once: it may enter the queue.
func (s *Store) yield(ctx context.Context, groups []*group) error {
	pause := time.Duration(0)
	for _, g := range groups {
		if g.step != looking || !g.fresh || !s.isNamedElsewhere(g, g.view) {
			continue
		}
		pause = max(pause, headStart<<g.yields)
		if g.yields++; g.yields == maxYields {
			g.yields, g.yielded = 0, g.view.mod
		}
	}
	if pause == 0 {
		return nil
	}
	return clock.Sleep(ctx, pause)
}

// keepLease leaves the lease of another store on its page and its clock. A
// progress report or a checkpoint changes neither.
func (g *group) keepLease() {
	rec, v := g.next.rec, g.view
	*g.next = *v.stored
	if v.page != nil && v.pageMod > v.mod {
		g.next.written = v.page.written // an older time would seem the clock's newest
	}
	rec.Renewed, rec.Deadline = v.stored.rec.Renewed, v.stored.rec.Deadline
	g.next.rec = rec
}

// canNoteRenewal reports whether writing the page is enough for a renewal. If
// so, it sets the group's lease and etcd lease.
func (s *Store) canNoteRenewal(g *group, v *view, next tenure.Record) bool {
	since := next.Renewed.Sub(v.stored.rec.Renewed)
	if v.stored.clock != s.domain || since < 0 || since > s.notedFor() ||
		!next.Deadline.Equal(next.Renewed.Add(next.TTL)) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memberOf(v.stored)
	if m == nil || m.page.etcdLease.gone || m.page.etcdLease.seconds != leaseSeconds(next.TTL) ||
		next.Renewed.Before(m.renewed) { // the clock was set back
		return false
	}
	g.renewed, g.etcdLease = m, m.page.etcdLease
	return true
}

// extendAll extends the etcd leases of groups for as long as their answers will
// promise. It returns the groups that can go on. It fails the others, or leaves
// them to the next round if their etcd lease is gone.
func (s *Store) extendAll(ctx context.Context, groups []*group) (ready []*group) {
	need := map[*etcdLease]time.Duration{}
	for _, g := range groups {
		if g.etcdLease != nil {
			need[g.etcdLease] = max(need[g.etcdLease], s.needed(g))
		}
	}
	errs, mu, all := map[*etcdLease]error{}, sync.Mutex{}, sync.WaitGroup{}
	for a, d := range need {
		if lasts, _ := s.leaseLasts(a, d); lasts {
			continue
		}
		all.Go(func() {
			if err := s.extendLease(ctx, a, d); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[a] = err
			}
		})
	}
	all.Wait()
	for _, g := range groups {
		switch err := errs[g.etcdLease]; {
		case g.etcdLease == nil || err == nil:
			ready = append(ready, g)
		case !errors.Is(err, errLeaseLost):
			fail([]*group{g}, err)
		}
	}
	return ready
}

// reserve gives a record that is to be written its page. It keeps its old page
// if that still fits.
func (s *Store) reserve(g *group) {
	if g.etcdLease == nil {
		return
	}
	rec := &g.next.rec
	s.mu.Lock()
	defer s.mu.Unlock()
	g.member = &member{key: g.key, grant: rec.Grant, ttl: rec.TTL, deadline: rec.Deadline}
	var except *ownPage
	if old := s.memberOf(g.view.stored); old != nil && !g.granted {
		setBack := rec.Renewed.Before(old.renewed) // the page has a later renewal
		if old.page.etcdLease == g.etcdLease && !setBack {
			g.member, g.next.page = nil, old.page.id
			return
		}
		// It has another TTL or page now, but the queue is the same.
		g.member.next, except = old.next, old.page
	}
	s.addMember(g.etcdLease, g.member, except)
	if g.next.page = g.member.page.id; g.member.page.mod == 0 {
		g.creates = g.member.page
	}
}

// release gives up the member of a write that failed. If the write may have
// happened, the record may be in etcd, on a page that nobody renews it on. Then
// Close must not revoke the etcd lease.
func (s *Store) release(g *group, unknown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.member != nil {
		s.removeMember(g.member)
		g.etcdLease.doubtful = g.etcdLease.doubtful || unknown
		g.member = nil
	}
}

// wrote notes that a group's record is in etcd.
func (s *Store) wrote(g *group, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newer := s.views[g.key]; newer != nil && newer.mod > revision && !newer.isOfTerm(g.next) {
		// The answer was overtaken: the record has been written again.
		if g.member != nil {
			s.removeMember(g.member)
		}
		return
	}
	if old := s.held[g.key]; old != nil && g.member != nil && old != g.member {
		s.removeMember(old)
	}
	if g.member != nil {
		s.held[g.key] = g.member
	}
	if m := s.memberOf(g.next); m != nil {
		m.ttl, m.lapsed = g.next.rec.TTL, false
		m.deadline = later(g.next.rec.Deadline, m.renewed.Add(m.ttl))
		s.setAlarm(m.page)
	}
	s.remember(g.key, &view{mod: revision, asOf: revision, stored: g.next})
}

// finish copies the records in the answers, so that the caller cannot change
// the cache through them. It leaves out histories that the caller does not
// need. It tells the hub of waiters how their acquires went.
func (s *Store) finish(g *group) {
	for i := range g.answers {
		a := &g.answers[i]
		switch err := a.Err.(type) { //nolint:errorlint // the law's own
		case *tenure.NotOwnedError: // its history says who ended the term
			err.Record = copied(err.Record)
			a.Record = err.Record
		case *tenure.HeldError:
			err.Record = withoutHistory(err.Record)
			a.Record = err.Record
		default:
			a.Record = withoutHistory(a.Record)
		}
		if g.requests[i].Verb != tenure.Acquire {
			continue
		}
		if a.Err == nil {
			s.hub.Granted(g.key)
		} else {
			s.hub.Refused(g.key, g.entered)
		}
	}
	g.step = finished
}

func copied(rec tenure.Record) tenure.Record {
	rec.Guards, rec.History = slices.Clone(rec.Guards), slices.Clone(rec.History)
	return rec
}

func withoutHistory(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = nil, slices.Clone(rec.Guards)
	return rec
}

// fail ends groups: the outcome of their requests is unknown because of err.
func fail(groups []*group, err error) {
	for _, g := range groups {
		for i := range g.answers {
			g.answers[i] = store.Answer{Err: store.Unknown(err)}
		}
		g.step = finished
	}
}
