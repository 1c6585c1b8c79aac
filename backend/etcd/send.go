package etcd

import (
	"context"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/tenure"
)

const (
	// maxGroups is how many keys one transaction carries out. etcd takes 128
	// operations in a transaction. A transaction within another may have as
	// many as the outer one leaves over. A group has at most six.
	maxGroups = 100
	maxOps    = 128 - 8
	// maxBytes bounds the size of a transaction. etcd takes 1.5 MiB.
	maxBytes = 1 << 20
)

// batch is the groups that one transaction carries out.
type batch struct {
	groups  []*group
	bytes   int
	renewed []*ownPage // pages to write, because leases on them are renewed
	created []*ownPage // pages to create, if they do not exist
}

// batches packs groups into batches. The renewals on one page go together.
func (s *Store) batches(groups []*group) (out []*batch) {
	open := &batch{}
	add := func(bytes int, added ...*group) {
		n := len(open.groups) + len(added)
		full := n > maxGroups || n+len(open.renewed)+len(open.created)+1 > maxOps || open.bytes+bytes > maxBytes
		if len(open.groups) > 0 && full {
			out = append(out, open)
			open = &batch{}
		}
		open.groups, open.bytes = append(open.groups, added...), open.bytes+bytes
	}
	byPage, n := map[*ownPage][]*group{}, 0
	for _, g := range groups {
		switch g.step {
		case renewing:
			byPage[g.renewed.page] = append(byPage[g.renewed.page], g)
			continue
		case writing:
			s.reserve(g)
			s.writeOps(g, n%maxGroups)
		default:
			s.lookOps(g)
		}
		n++
		add(g.ops.bytes+512+16*(len(s.names)+len(g.key)), g)
		if g.creates != nil && !slices.Contains(open.created, g.creates) {
			open.created = append(open.created, g.creates)
		}
	}
	for p, renewals := range byPage {
		add(maxPageBytes, renewals...)
		open.renewed = append(open.renewed, p)
	}
	if len(open.groups) > 0 {
		out = append(out, open)
	}
	return out
}

// operations are the part of a group in a transaction.
type operations struct {
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
	bytes           int
	// expected is the page that otherwise reads, or then if the group only
	// looks. If comparesPage is set, the page must have the revision pageMod.
	expected     pageID
	comparesPage bool
	pageMod      int64
	// head is the index in then of a read of the queue, or of the offer of a
	// freed key to next. It is -1 if there is none.
	head int
	next successors
}

// lookOps makes the operations that read a key. A store whose callers wait for
// the key enters the queue at the same time.
func (s *Store) lookOps(g *group) {
	g.ops = operations{head: -1}
	g.ops.then, g.ops.expected = s.reads(g.key, g.view)
	if g.enters {
		g.ops.then = append(g.ops.then, s.enterOp(g.key, g.etcdLease))
		g.entered = true
	}
}

// writeOps makes the operations that write a group's record. number tells its
// notice from those of other groups: no transaction puts one key twice.
func (s *Store) writeOps(g *group, number int) {
	o := operations{head: -1}
	o.otherwise, o.expected = s.reads(g.key, g.view)
	record, old := s.names.record(g.key), g.view.stored
	o.compares = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(record), "=", g.view.mod)}
	s.mu.Lock()
	m := s.memberOf(old)
	if g.next.page.store == s.id && g.creates == nil {
		name := s.names.page(g.next.page)
		o.compares = append(o.compares, clientv3.Compare(clientv3.CreateRevision(name), ">", 0))
	}
	// Meanwhile the lease may have been renewed on its page. That matters if it
	// is over, and if it leaves the page for another.
	leaves := !g.granted && carried(&g.next.rec) && g.next.page != old.page
	if o.comparesPage = g.expired || leaves; o.comparesPage {
		if o.pageMod = g.view.pageMod; !g.view.pageRead && m != nil {
			o.pageMod = m.page.mod
		}
		o.compares = append(o.compares, clientv3.Compare(clientv3.ModRevision(s.names.page(old.page)), "=", o.pageMod))
	}
	if freed := !carried(&g.next.rec); freed && m != nil {
		o.next = m.next
	}
	s.mu.Unlock()
	byHand := slices.ContainsFunc(g.requests, func(r tenure.Request) bool { return r.Verb.ByHand() })
	if byHand {
		o.then = append(o.then, clientv3.OpPut(s.names.notices()+strconv.Itoa(number), g.key))
	}
	value := g.next.encode()
	o.bytes = len(value)
	put := clientv3.OpPut(record, value)
	contended := g.entered || s.hub.Watches(g.key) || old != nil && (old.named != 0 || carried(&old.rec))
	switch {
	case !carried(&g.next.rec):
		unnamed := []clientv3.Op{put, s.headOp(g.key)}
		if o.head = len(o.then) + 1; o.next[0] == 0 {
			o.then = append(o.then, unnamed...)
			break
		}
		named := *g.next
		there, offer := s.offerOps(&named, o.next)
		o.head, o.bytes = len(o.then), 3*o.bytes
		o.then = append(o.then, clientv3.OpTxn(there, offer, unnamed))
	case g.granted && contended && !byHand:
		o.then = append(o.then, put, clientv3.OpDelete(s.names.entry(g.key, s.id)))
		if old != nil && old.named != 0 && old.named != s.id { // it did not come
			o.then = append(o.then, clientv3.OpDelete(s.names.entry(g.key, old.named)))
		}
		o.head = len(o.then)
		o.then = append(o.then, s.headOp(g.key))
	case g.granted: // others may wait, and have to ask again
		o.then = append(o.then, put, clientv3.OpDelete(s.names.queue(g.key), clientv3.WithPrefix()))
	default:
		o.then = append(o.then, put)
	}
	g.ops = o
}

// headOp reads the first two entries of a queue.
func (s *Store) headOp(key string) clientv3.Op {
	return clientv3.OpGet(s.names.queue(key), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(2))
}

// offerOps makes the operations that offer a freed key to the first store in
// its queue. They write the record into that store's entry, too, so that it can
// ask at once. They tell the second store that it is next.
func (s *Store) offerOps(freed *storedRecord, next successors) (there []clientv3.Cmp, ops []clientv3.Op) {
	key := freed.rec.Key
	tell := func(store identity, value string) ([]clientv3.Cmp, []clientv3.Op) {
		name := s.names.entry(key, store)
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(name), ">", 0)},
			[]clientv3.Op{clientv3.OpPut(name, value, clientv3.WithIgnoreLease())}
	}
	freed.named = next[0]
	value := freed.encode()
	there, ops = tell(next[0], value)
	ops = append(ops, clientv3.OpPut(s.names.record(key), value))
	if next[1] != 0 {
		second, told := tell(next[1], youAreNext)
		ops = append(ops, clientv3.OpTxn(second, told, nil))
	}
	return there, ops
}

// offerLater offers a key that was freed at a revision, in the background, if
// its record is still the same. Close waits for that, so that a process can
// release a key and end.
func (s *Store) offerLater(freed *storedRecord, revision int64, next successors) {
	named := *freed
	there, ops := s.offerOps(&named, next)
	same := clientv3.Compare(clientv3.ModRevision(s.names.record(named.rec.Key)), "=", revision)
	s.background(func(context.Context) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*requestTimeout)
		defer cancel()
		resp, err := s.txn(ctx, append(there, same), ops, nil)
		if err == nil && resp.Succeeded {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.remember(named.rec.Key, &view{mod: resp.Header.Revision, asOf: resp.Header.Revision, stored: &named})
		}
	})
}

// renewOps makes the operations of a renewal. The page itself is written once
// for all leases on it. The caller holds the page's lock.
func (s *Store) renewOps(g *group) {
	g.ops = operations{head: -1}
	g.ops.otherwise, g.ops.expected = s.reads(g.key, g.view)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.ops.compares = []clientv3.Cmp{
		s.unchanged(g.renewed.page),
		clientv3.Compare(clientv3.ModRevision(s.names.record(g.key)), "=", g.view.mod),
	}
}

// send carries out a batch in one transaction and hands the answers to its
// groups. A group that is not finished afterwards has a newer view.
func (s *Store) send(ctx context.Context, b *batch) {
	unlock, err := b.lockPages(ctx)
	defer unlock()
	if err != nil {
		s.undo(b, false)
		fail(b.groups, err)
		return
	}
	parts := s.pageOps(b)
	for _, g := range b.groups {
		if g.step == renewing {
			s.renewOps(g)
		}
		parts = append(parts, g.ops)
	}
	answers, revision, err := s.transact(ctx, parts)
	switch {
	case leaseGone(err): // of a page or of a queue entry: nothing was done
		s.checkLeases(ctx, b)
		s.undo(b, false)
		return
	case err != nil:
		s.undo(b, true)
		fail(b.groups, err)
		return
	}
	s.mu.Lock()
	pages := slices.Concat(b.created, b.renewed)
	for i, p := range pages {
		if answers[i].Succeeded {
			p.mod = revision
			s.setAlarm(p)
		}
	}
	for _, g := range b.groups {
		// The page says so, also if the record has changed and the group fails.
		if g.step == renewing && g.renewed.page.mod == revision {
			g.renewed.noted(g.now)
		}
	}
	s.mu.Unlock()
	for i, g := range b.groups {
		s.takeAnswer(g, revision, answers[len(pages)+i])
	}
}

// lockPages waits until nobody else writes the pages that a batch renews. They
// are sorted, so two batches never wait for each other.
func (b *batch) lockPages(ctx context.Context) (unlock func(), err error) {
	slices.SortFunc(b.renewed, func(a, b *ownPage) int { return int(a.id.number) - int(b.id.number) })
	locked := 0
	unlock = func() {
		for _, p := range b.renewed[:locked] {
			<-p.lock
		}
	}
	for _, p := range b.renewed {
		select {
		case p.lock <- struct{}{}:
			locked++
		case <-ctx.Done():
			return unlock, wait.Ended(ctx)
		}
	}
	return unlock, nil
}

// transact makes one transaction of several. It returns an answer for each.
func (s *Store) transact(ctx context.Context, parts []operations) ([]*etcdserverpb.TxnResponse, int64, error) {
	if len(parts) == 1 { // a transaction within another costs etcd more
		resp, err := s.txn(ctx, parts[0].compares, parts[0].then, parts[0].otherwise)
		if err != nil {
			return nil, 0, err
		}
		return []*etcdserverpb.TxnResponse{(*etcdserverpb.TxnResponse)(resp)}, resp.Header.Revision, nil
	}
	ops := make([]clientv3.Op, len(parts))
	for i, o := range parts {
		ops[i] = clientv3.OpTxn(o.compares, o.then, o.otherwise)
	}
	resp, err := s.txn(ctx, nil, ops, nil)
	if err != nil {
		return nil, 0, err
	}
	answers := make([]*etcdserverpb.TxnResponse, len(parts))
	for i := range answers {
		answers[i] = resp.Responses[i].GetResponseTxn()
	}
	return answers, resp.Header.Revision, nil
}

// pageOps makes the operations that create and renew the pages of a batch.
func (s *Store) pageOps(b *batch) (parts []operations) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, p := range b.created {
		missing := clientv3.Compare(clientv3.CreateRevision(s.names.page(p.id)), "=", 0)
		put := s.put(p, p.content(now, nil))
		parts = append(parts, operations{compares: []clientv3.Cmp{missing}, then: []clientv3.Op{put}})
	}
	for _, p := range b.renewed {
		renewed := map[uint64]time.Time{}
		for _, g := range b.groups {
			if g.step == renewing && g.renewed.page == p {
				renewed[short(g.renewed.grant)] = later(g.now, g.renewed.renewed)
			}
		}
		put := s.put(p, p.content(now, renewed))
		parts = append(parts, operations{compares: []clientv3.Cmp{s.unchanged(p)}, then: []clientv3.Op{put}})
	}
	return parts
}

// later returns the later of two times. A renewal may be carried out after one
// that began later, and must take nothing back from it.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// checkLeases finds out which etcd lease of a batch is gone.
func (s *Store) checkLeases(ctx context.Context, b *batch) {
	used := map[*etcdLease]bool{}
	for _, g := range b.groups {
		if g.etcdLease != nil {
			used[g.etcdLease] = true
		}
		g.entered = g.entered && !g.enters
	}
	for a := range used {
		if seconds, err := s.keepAliveOnce(ctx, a.id); err == nil && seconds <= 0 {
			s.leaseLost(a)
		}
	}
}

// undo gives up the members that were reserved for a batch.
func (s *Store) undo(b *batch, unknown bool) {
	for _, g := range b.groups {
		if g.step == writing {
			s.release(g, unknown)
		}
	}
}

// takeAnswer handles etcd's answer to a group. The group is finished, or has a
// newer view afterwards.
func (s *Store) takeAnswer(g *group, revision int64, resp *etcdserverpb.TxnResponse) {
	switch {
	case g.step == writing && resp.Succeeded:
		s.readQueue(g, resp.Responses, revision)
		s.wrote(g, revision)
		if g.granted {
			s.sweeping.Granted()
		}
		s.finish(g)
		return
	case g.step == renewing && resp.Succeeded:
		s.finish(g)
		return
	case g.step == writing:
		s.release(g, false)
	}
	v, err := s.parse(g.key, g.ops.expected, resp.Responses, revision)
	if err != nil {
		fail([]*group{g}, err)
		return
	}
	if !g.fresh {
		g.firstRead = revision
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case g.step == looking || v.mod != g.view.mod || g.etcdLease == nil:
	case g.step == writing && (!g.ops.comparesPage || v.pageMod == g.ops.pageMod), g.step == renewing && v.page == nil:
		s.dropLease(g.etcdLease) // only its page can be missing: nothing else has changed
	case g.step == renewing:
		g.renewed.page.adopt(v.pageMod, v.page)
	}
	s.remember(g.key, v)
	if newer := s.views[g.key]; newer != v && newer == g.view {
		// It was cached before this read. So etcd was restored meanwhile.
		delete(s.views, g.key)
		s.remember(g.key, v)
	} else if newer != nil {
		// The answer may have been overtaken: this store may have released the
		// key meanwhile.
		v = newer
	}
	g.view, g.fresh = v, true
}

// readQueue finds the waiting stores in the answers to a write.
func (s *Store) readQueue(g *group, answers []*etcdserverpb.ResponseOp, revision int64) {
	if g.ops.head < 0 {
		return
	}
	next, read := g.ops.next, answers[g.ops.head]
	if offer := read.GetResponseTxn(); offer != nil && offer.Succeeded {
		g.next.named = next[0]
	} else {
		if next = (successors{}); offer != nil {
			read = offer.Responses[1]
		}
		for n, kv := range read.GetResponseRange().Kvs {
			next[n] = s.names.waiting(g.key, string(kv.Key))
		}
		switch {
		case !carried(&g.next.rec) && next[0] != 0:
			s.offerLater(g.next, revision, next)
		case g.member != nil:
			g.member.next = next
			s.listener.left(g.key, revision)
		}
	}
	for i, req := range g.requests {
		g.answers[i].Awaited = next[0] != 0 && next[0] != s.id && req.Verb == tenure.Release && g.answers[i].Err == nil
	}
}
