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

// Apply carries out requests. One transaction takes up to 120 keys; larger
// calls send several at a time. A key that this store holds, or has seen freed,
// is changed in one round trip. If a key has changed since it was last seen,
// the answer brings its newer state, and Apply decides again.
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
	looking step = iota // read the key
	writing             // write the key, if it is unchanged
	finished
)

// group is the requests of one call on one key, in their order, and their
// answers. They take effect together or not at all.
type group struct {
	key      string
	requests []tenure.Request
	indexes  []int // in the call
	answers  []store.Answer

	view    *view // nil if nothing is known of the key
	fresh   bool  // the view was read for these requests, so a refusal counts
	enters  bool  // reading the key also puts this store into its queue
	entered bool  // it has done so
	yields  int   // how often it has left the key to another store,
	yielded int64 // and the revision of the record that it leaves no longer

	// The rest is what decide and later steps have decided.
	step      step
	now       time.Time
	granted   bool          // a new term begins
	next      *storedRecord // the record to write; nil: it stays as it is
	beat      *heartbeat    // the heartbeat to write; nil: it stays, or goes with the lease
	etcdLease *etcdLease    // that carries the key, or this store's queue entry
	lasts     time.Duration // for how long it must last
	ops       operations
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
	g.step, g.next, g.beat, g.etcdLease, g.enters = looking, nil, nil, nil, false
	v := g.view
	if v == nil && g.requests[0].Verb == tenure.Acquire {
		v = &view{} // most likely the key has no record
	}
	if v == nil || s.isNamedElsewhere(g, v) {
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
	case !changed:
		s.willLook(g)
		return
	}
	g.step, g.view, g.lasts = writing, v, cur.Deadline.Sub(g.now)
	switch {
	case renewals && rec.Alive(g.now) && s.isNoted(v, cur):
		g.etcdLease = v.own
	case reports:
		g.next = reported(v, cur)
		return
	default:
		g.next = &storedRecord{rec: cur, clock: s.domain, written: g.now}
		if !carried(&cur) {
			return
		}
		g.next.store = s.id
		g.etcdLease = s.etcdLeaseFor(leaseSeconds(max(cur.TTL, g.lasts)))
	}
	g.beat = &heartbeat{written: g.now, renewed: cur.Renewed}
}

// willLook makes an acquire enter the key's queue when it reads the key, if
// callers of this store wait for the key.
func (s *Store) willLook(g *group) {
	if g.requests[0].Verb == tenure.Acquire && !g.entered && s.hub.Watches(g.key) && !s.hub.Queued(g.key) {
		g.enters, g.etcdLease, g.lasts = true, s.etcdLeaseFor(leaseSeconds(s.queueTTL)), s.queueTTL/2
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

// reported returns the record after a progress report or a checkpoint. Any
// store may write it. It leaves the lease on its etcd lease and its clock.
func reported(v *view, rec tenure.Record) *storedRecord {
	next := *v.stored
	if v.beatMod > v.mod {
		next.written = v.beat.written // an older time would seem the clock's newest
	}
	rec.Renewed, rec.Deadline = next.rec.Renewed, next.rec.Deadline
	next.rec = rec
	return &next
}

// isNoted reports whether the heartbeat is enough for a renewal.
func (s *Store) isNoted(v *view, next tenure.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := next.Renewed.Sub(v.stored.rec.Renewed)
	return v.own != nil && !v.own.gone && v.own.seconds == leaseSeconds(next.TTL) && v.stored.clock == s.domain &&
		since >= 0 && since <= s.notedFor() && next.Deadline.Equal(next.Renewed.Add(next.TTL)) &&
		!next.Renewed.Before(v.beat.renewed) // otherwise the clock was set back
}

// extendAll extends the etcd leases of groups for as long as their answers will
// promise. It returns the groups that can go on. It fails the others, or leaves
// them to the next round if their etcd lease is gone.
func (s *Store) extendAll(ctx context.Context, groups []*group) (ready []*group) {
	need := map[*etcdLease]time.Duration{}
	for _, g := range groups {
		if g.etcdLease != nil {
			need[g.etcdLease] = max(need[g.etcdLease], g.lasts)
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

// wrote notes that etcd has carried out a group's write.
func (s *Store) wrote(g *group, revision int64) {
	v := *g.view
	if v.asOf = revision; g.next != nil {
		v.mod, v.stored = revision, g.next
	}
	switch {
	case !carried(&v.stored.rec):
		v = view{mod: revision, stored: g.next, asOf: revision}
	case g.beat != nil:
		v.beatMod, v.beat, v.own = revision, *g.beat, g.etcdLease
	}
	if g.granted {
		v.next = g.ops.next
	}
	if len(g.requests) == 0 { // a lease that has lapsed
		v.own = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(g.key, &v)
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
