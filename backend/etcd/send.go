package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
)

// errLeaseLost is the error of a request whose etcd lease expired meanwhile.
var errLeaseLost = errors.New("etcd: the etcd lease expired while it was in use; ask again")

// send carries out a batch in one transaction and hands the answers to its
// groups. A group that is not finished afterwards has a newer view.
func (s *Store) send(ctx context.Context, b *batch) {
	if err := b.lockPages(ctx); err != nil {
		s.undo(b, true)
		b.fail(err)
		return
	}
	defer b.unlockPages(len(b.pages))
	t := s.build(b)
	wait := s.extendAll(ctx, b)
	resp, err := s.txn(ctx, t.compares, t.then, t.otherwise)
	unextended := wait()
	switch {
	case leaseGone(err):
		// The etcd lease of a live key or of a queue entry has expired. Nothing
		// was done.
		for _, a := range t.newLeases {
			s.leaseLost(a)
		}
		if slices.ContainsFunc(b.groups, func(g *group) bool { return g.joins != nil }) {
			s.leaseLost(s.etcdLeaseFor(leaseSeconds(s.queueTTL)))
		}
		s.undo(b, true)
		return
	case err != nil:
		s.undo(b, false)
		b.fail(err)
		return
	}
	if resp.Succeeded {
		s.mu.Lock()
		for _, a := range t.newLeases {
			a.hasLiveKey = true
		}
		for i, p := range b.pages {
			if r := resp.Responses[t.pages+i].GetResponseTxn(); r == nil || r.Succeeded {
				p.written, p.mod = true, resp.Header.Revision
				s.setAlarm(p)
			}
		}
		s.mu.Unlock()
	}
	if t.form == joint && !resp.Succeeded {
		s.nestedLeft.Store(nestedFor)
	}
	for i, g := range b.groups {
		g.sentJoint = t.form == joint
		s.takeAnswer(g, resp.Header.Revision, t.answer(resp, i))
		if err := unextended[g.etcdLease]; g.etcdLease != nil && err != nil && g.step == finished {
			g.fail(err)
		}
	}
	if t.freed && resp.Succeeded {
		s.offerFreed(b, resp.Header.Revision, resp.Responses[len(resp.Responses)-1].GetResponseRange())
	}
}

// transaction is what a batch is sent as. See the package comment for its
// forms.
type transaction struct {
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
	newLeases       []*etcdLease
	pages           int   // index of the first page's operation in then
	groups          []int // index of each group's first operation, and the end
	freed           bool
	form            form
}

// form is how the groups of a batch are put into one transaction.
type form int

const (
	nested form = iota // a transaction within it for each group
	single             // there is only one group
	joint              // all groups or none
)

const (
	// nestedFor is how many batches are sent nested after a joint one has
	// failed. Then other clients work on the same keys.
	nestedFor = 32
	// recent is a time in which a key's shelf hardly changes: that takes eight
	// grants.
	recent = time.Second
)

// answer returns etcd's answer to group i.
func (t *transaction) answer(resp *clientv3.TxnResponse, i int) *etcdserverpb.TxnResponse {
	switch {
	case t.form == nested:
		return resp.Responses[t.groups[i]].GetResponseTxn()
	case resp.Succeeded:
		return &etcdserverpb.TxnResponse{Succeeded: true, Responses: resp.Responses[t.groups[i]:t.groups[i+1]]}
	case t.form == joint:
		if both := resp.Responses[i].GetResponseTxn(); both != nil {
			return &etcdserverpb.TxnResponse{Responses: both.Responses}
		}
		return &etcdserverpb.TxnResponse{Responses: resp.Responses[i : i+1]}
	}
	return &etcdserverpb.TxnResponse{Responses: resp.Responses}
}

// build makes the transaction of a batch: live keys, pages, and the operations
// of each group.
func (s *Store) build(b *batch) *transaction {
	t := &transaction{form: s.chooseForm(b), groups: make([]int, 0, len(b.groups)+1)}
	t.then = make([]clientv3.Op, 0, len(b.groups)+len(b.groups)/4+len(b.pages)+2)
	s.mu.Lock()
	for i, g := range b.groups {
		g.number = i
		if a := g.etcdLease; g.step == writing && a != nil && !a.hasLiveKey && !slices.Contains(t.newLeases, a) {
			t.newLeases = append(t.newLeases, a)
			t.then = append(t.then, clientv3.OpPut(s.names.live(a.id), "", clientv3.WithLease(a.id)))
		}
	}
	t.pages = len(t.then)
	for _, p := range b.pages {
		t.then = append(t.then, s.pageOp(b, p, t.form == single))
	}
	s.mu.Unlock()
	if t.form == joint && !s.buildJoint(b, t) {
		t.form, t.compares, t.then, t.otherwise, t.groups = nested, nil, t.then[:t.pages], nil, t.groups[:0]
	}
	for _, g := range b.groups {
		if t.form != joint {
			g.putsLiveKey = slices.Contains(t.newLeases, g.etcdLease)
			t.groups = append(t.groups, len(t.then))
			compares, then, otherwise := s.operations(g)
			if t.form == single {
				t.compares, t.then, t.otherwise = compares, append(t.then, then...), otherwise
			} else {
				t.then = append(t.then, clientv3.OpTxn(compares, then, otherwise))
			}
		}
		t.freed = t.freed || g.step == writing && g.next.rec.State == tenure.Free && g.wakes == wakeNobody
	}
	t.groups = append(t.groups, len(t.then))
	// One read for all queues. Mostly nobody waits for anything.
	if t.freed {
		t.then = append(t.then, clientv3.OpGet(s.names.queues(),
			clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(maxQueueRead)))
	}
	return t
}

// chooseForm chooses the form of a batch. A transaction within a transaction
// costs etcd about as much again as its operations. So a batch is joint if its
// groups only write, and probably find their keys unchanged.
func (s *Store) chooseForm(b *batch) form {
	if len(b.groups) == 1 {
		return single
	}
	if len(b.pages) > 0 {
		return nested
	}
	for _, g := range b.groups {
		if g.step != writing || g.expired || g.sentJoint {
			return nested
		}
	}
	if s.nestedLeft.Load() > 0 {
		s.nestedLeft.Add(-1)
		return nested
	}
	return joint
}

// buildJoint fills in a joint transaction. It reports whether etcd accepts that
// many operations.
func (s *Store) buildJoint(b *batch, t *transaction) bool {
	t.compares, t.otherwise = make([]clientv3.Cmp, 0, len(b.groups)+2), make([]clientv3.Op, 0, len(b.groups))
	var compared []*etcdLease
	for _, g := range b.groups {
		g.putsLiveKey = slices.Contains(t.newLeases, g.etcdLease)
		if g.etcdLease != nil && !g.putsLiveKey && !slices.Contains(compared, g.etcdLease) {
			compared = append(compared, g.etcdLease)
			t.compares = append(t.compares, s.liveKeyExists(g.etcdLease.id))
		}
		t.groups = append(t.groups, len(t.then))
		name := s.names.record(g.key)
		t.compares = append(t.compares, clientv3.Compare(clientv3.ModRevision(name), "=", g.view.mod))
		if g.awardTo != nil {
			t.compares = append(t.compares, s.bidConditions(g.key, g.awardTo)...)
		}
		t.then = s.writeOps(t.then, g, name)
		g.lookup = lookup{key: g.key, shelf: g.view.stored == nil || time.Since(g.view.cachedAt) > recent}
		if g.lookup.shelf {
			t.otherwise = append(t.otherwise, clientv3.OpTxn(nil, g.lookup.ops(s.names), nil))
		} else {
			t.otherwise = append(t.otherwise, clientv3.OpGet(name))
		}
	}
	return len(t.then) < maxOps && len(t.compares) <= maxOps
}

// pageOp returns the operation that writes a page with the renewals of a batch.
// The caller holds the mutex.
func (s *Store) pageOp(b *batch, p *ownPage, single bool) clientv3.Op {
	renewed := make(map[int]time.Time, len(b.groups))
	for _, g := range b.groups {
		if g.step == renewing && g.page == p {
			renewed[g.view.stored.slot] = g.now
		}
	}
	put := clientv3.OpPut(s.names.page(p.id), p.content(s, s.now(), renewed))
	if single { // the group has the same conditions
		return put
	}
	return clientv3.OpTxn(s.pageConditions(p.id, p.etcdLease, p.mod), []clientv3.Op{put}, nil)
}

// operations returns the conditions and operations of a group.
func (s *Store) operations(g *group) (compares []clientv3.Cmp, then, otherwise []clientv3.Op) {
	switch g.step {
	case writing:
		if g.old == nil || g.old.lease == 0 || !g.expired && s.isOwn(g.old) {
			// No page or live key to read, or they are known here.
			g.lookup = lookup{key: g.key, shelf: true}
		}
		otherwise = g.lookup.ops(s.names)
		if g.expired {
			otherwise = append(otherwise, clientv3.OpGet(s.names.live(g.next.lease), clientv3.WithKeysOnly()))
		}
		return s.conditions(g), s.writeOps(nil, g, s.names.record(g.key)), otherwise
	case renewing:
		unchanged := clientv3.Compare(clientv3.ModRevision(s.names.record(g.key)), "=", g.view.mod)
		s.mu.Lock()
		mod := g.page.mod
		s.mu.Unlock()
		return append(s.pageConditions(g.page.id, g.etcdLease, mod), unchanged), nil, g.lookup.ops(s.names)
	}
	return nil, append(g.lookup.ops(s.names), s.joinOps(g)...), nil
}

// writeOps adds the operations that write a group's record and inform waiting
// stores.
func (s *Store) writeOps(ops []clientv3.Op, g *group, name string) []clientv3.Op {
	before, after := s.queueOps(g)
	value := g.value()
	if g.byHand() {
		ops = append(ops, s.notice(g))
	}
	if g.shelf != "" {
		ops = append(ops, clientv3.OpPut(s.names.shelf(g.key), g.shelf))
	}
	return append(append(append(ops, before...), clientv3.OpPut(name, value)), after...)
}

func (s *Store) liveKeyExists(id clientv3.LeaseID) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.names.live(id)), ">", 0)
}

// pageConditions returns the conditions of every write of a page: its etcd
// lease lives, and the page is as this store wrote it last. So a write that
// arrives late cannot undo a renewal that was confirmed after it.
func (s *Store) pageConditions(p pageID, a *etcdLease, mod int64) []clientv3.Cmp {
	return []clientv3.Cmp{
		s.liveKeyExists(a.id),
		clientv3.Compare(clientv3.ModRevision(s.names.page(p)), "=", mod),
	}
}

// extendAll begins to extend the etcd leases of a batch for as long as its
// answers will promise. The returned function waits for that. It returns the
// etcd leases that could not be extended.
func (s *Store) extendAll(ctx context.Context, b *batch) func() map[*etcdLease]error {
	var need map[*etcdLease]time.Duration
	for _, g := range b.groups {
		var d time.Duration
		switch {
		case g.step == writing && g.etcdLease != nil:
			d = g.next.rec.Deadline.Sub(g.now)
		case g.step == renewing:
			d = g.view.stored.rec.TTL
		default:
			continue
		}
		s.mu.Lock()
		// Nobody keeps a dropped etcd lease alive, even if its live key exists.
		sure := !g.etcdLease.gone && g.etcdLease.remaining() >= d
		s.mu.Unlock()
		if !sure {
			if need == nil {
				need = map[*etcdLease]time.Duration{}
			}
			need[g.etcdLease] = max(need[g.etcdLease], d)
		}
	}
	if need == nil {
		return func() map[*etcdLease]error { return nil }
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	failed := map[*etcdLease]error{}
	for a, d := range need {
		all.Go(func() {
			err := s.extendLease(ctx, a, d)
			s.mu.Lock()
			if err == nil && a.gone {
				err = errLeaseLost
			}
			s.mu.Unlock()
			if err != nil {
				mu.Lock()
				failed[a] = err
				mu.Unlock()
			}
		})
	}
	return func() map[*etcdLease]error {
		all.Wait()
		return failed
	}
}

// lockPages waits until nobody else writes the pages of a batch. They are
// sorted, so two batches never wait for each other.
func (b *batch) lockPages(ctx context.Context) error {
	for n, p := range b.pages {
		select {
		case p.lock <- struct{}{}:
		case <-ctx.Done():
			b.unlockPages(n)
			return wait.Ended(ctx)
		}
	}
	return nil
}

// unlockPages lets others write the first n pages.
func (b *batch) unlockPages(n int) {
	for _, p := range b.pages[:n] {
		<-p.lock
	}
}

// fail ends all groups of a batch with an unknown outcome.
func (b *batch) fail(err error) {
	for _, g := range b.groups {
		g.fail(err)
	}
}

// undo gives up everything that was reserved for a batch. known says that the
// batch certainly had no effect.
func (s *Store) undo(b *batch, known bool) {
	for _, g := range b.groups {
		if g.step == writing {
			s.freeReserved(g, known)
		}
		s.undoJoin(g, known)
	}
}
