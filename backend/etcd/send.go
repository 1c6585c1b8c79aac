package etcd

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

const (
	// maxGroups is how many keys one transaction carries out. etcd takes 128
	// operations in a transaction. A transaction within another may have as
	// many as the outer one leaves over. A group has at most six.
	maxGroups = 120
	// maxBytes bounds the size of a transaction. etcd takes 1.5 MiB.
	maxBytes = 1 << 20
)

// batches divides groups into parts that one transaction can carry out. It
// makes their operations.
func (s *Store) batches(groups []*group) (out [][]*group) {
	bytes := maxBytes
	for i, g := range groups {
		n := 0
		if len(out) > 0 {
			n = len(out[len(out)-1])
		}
		if g.step == writing {
			s.writeOps(g, i%maxGroups) // a part has at most so many, one after the other
		} else {
			s.lookOps(g)
		}
		size := g.ops.bytes + 512 + 16*(len(s.names)+len(g.key))
		if bytes += size; n == maxGroups || bytes > maxBytes {
			out, bytes = append(out, nil), size
		}
		out[len(out)-1] = append(out[len(out)-1], g)
	}
	return out
}

// operations are the part of a group in a transaction.
type operations struct {
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
	bytes           int
	// head is the index in then of a read of the queue, or -1.
	head int
	// next are the first stores in the queue: those to whom the freed key is
	// offered, or those that were read.
	next successors
}

// lookOps makes the operations that read a key. A store whose callers wait for
// the key enters the queue at the same time.
func (s *Store) lookOps(g *group) {
	g.ops = operations{head: -1, then: s.reads(g.key)}
	if g.enters {
		g.ops.then = append(g.ops.then, s.enterOp(g.key, g.etcdLease))
		g.entered = true
	}
}

// writeOps makes the operations that write a group's key. They have the
// condition that the record is unchanged, and the heartbeat of a held key.
// number tells its notice from those of other groups: no transaction puts one
// key twice.
func (s *Store) writeOps(g *group, number int) {
	record, beat, old := s.names.record(g.key), s.names.heartbeat(g.key), g.view.stored
	o := operations{head: -1, otherwise: s.reads(g.key)}
	o.compares = append(o.compares, clientv3.Compare(clientv3.ModRevision(record), "=", g.view.mod))
	if old != nil && carried(&old.rec) {
		o.compares = append(o.compares, clientv3.Compare(clientv3.ModRevision(beat), "=", g.view.beatMod))
	}
	defer func() { g.ops = o }()
	if g.beat != nil {
		o.then = append(o.then, s.put(g.key, g.beat, g.etcdLease))
	}
	if g.next == nil {
		return
	}
	freed := !carried(&g.next.rec)
	if freed && g.view.beatMod != 0 {
		o.then = append(o.then, clientv3.OpDelete(beat))
	}
	byHand := slices.ContainsFunc(g.requests, func(r tenure.Request) bool { return r.Verb.ByHand() })
	if byHand {
		o.then = append(o.then, clientv3.OpPut(s.names.notices()+strconv.Itoa(number), g.key))
	}
	contended := g.entered || s.hub.Watches(g.key) || old != nil && (old.named != 0 || carried(&old.rec))
	switch {
	case freed && g.view.next[0] != 0:
		o.next = g.view.next
		there, offer := s.offerOps(g.next, o.next)
		o.compares, o.then = append(o.compares, there), append(o.then, offer...)
		o.bytes = 2 * len(offer[0].ValueBytes())
		o.otherwise = append(o.otherwise, s.headOp(g.key))
		return
	case freed:
		o.head = len(o.then)
		o.then = append(o.then, s.headOp(g.key))
	case g.granted && byHand: // all who wait have to ask again
		o.then = append(o.then, clientv3.OpDelete(s.names.queue(g.key), clientv3.WithPrefix()))
	case g.granted && contended:
		o.then = append(o.then, clientv3.OpDelete(s.names.entry(g.key, s.id)))
		if old != nil && old.named != 0 && old.named != s.id { // it did not come
			o.then = append(o.then, clientv3.OpDelete(s.names.entry(g.key, old.named)))
		}
		o.head = len(o.then)
		o.then = append(o.then, s.headOp(g.key))
	}
	value := g.next.encode()
	o.then, o.bytes = append(o.then, clientv3.OpPut(record, value)), len(value)
}

// headOp reads the first two entries of a queue.
func (s *Store) headOp(key string) clientv3.Op {
	return clientv3.OpGet(s.names.queue(key), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(2))
}

// offerOps makes the operations that offer a freed key to the first store in
// its queue. They write the record into that store's entry, too, so that it can
// ask at once. They tell the second store that it is next.
func (s *Store) offerOps(freed *storedRecord, next successors) (there clientv3.Cmp, ops []clientv3.Op) {
	tell := func(store identity, value string) (clientv3.Cmp, clientv3.Op) {
		name := s.names.entry(freed.rec.Key, store)
		return clientv3.Compare(clientv3.CreateRevision(name), ">", 0),
			clientv3.OpPut(name, value, clientv3.WithIgnoreLease())
	}
	freed.named = next[0]
	value := freed.encode()
	there, first := tell(next[0], value)
	ops = []clientv3.Op{clientv3.OpPut(s.names.record(freed.rec.Key), value), first}
	if next[1] != 0 {
		there, second := tell(next[1], youAreNext)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{there}, []clientv3.Op{second}, nil))
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
		resp, err := s.txn(ctx, []clientv3.Cmp{there, same}, ops, nil)
		if err == nil && resp.Succeeded {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.remember(named.rec.Key, &view{mod: resp.Header.Revision, asOf: resp.Header.Revision, stored: &named})
		}
	})
}

// send carries out groups in one transaction and hands them the answers. A
// group that is not finished afterwards has a newer view.
func (s *Store) send(ctx context.Context, groups []*group) {
	parts := make([]operations, len(groups))
	for i, g := range groups {
		parts[i] = g.ops
	}
	answers, revision, err := s.transact(ctx, parts)
	switch {
	case leaseGone(err): // of a heartbeat or of a queue entry: nothing was done
		s.checkLeases(ctx, groups)
		return
	case err != nil:
		s.mu.Lock()
		for _, g := range groups {
			s.doubt(g)
		}
		s.mu.Unlock()
		fail(groups, err)
		return
	}
	for i, g := range groups {
		s.takeAnswer(g, revision, answers[i])
	}
}

// doubt notes that the outcome of a group's transaction is unknown. If it may
// have put a lease on an etcd lease, the store looks at the key at the
// deadline. Otherwise nobody would write that the lease has lapsed. The caller
// holds the mutex.
func (s *Store) doubt(g *group) {
	if g.etcdLease != nil { // Close must not revoke it
		g.etcdLease.doubtful = true
	}
	if g.beat == nil || s.held[g.key] != nil {
		return
	}
	v := view{stored: cmp.Or(g.next, g.view.stored), beat: *g.beat, own: g.etcdLease}
	s.held[g.key] = v.unsure()
	_, deadline := v.renewal()
	s.setAlarm(deadline)
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

// checkLeases finds out which etcd lease of a batch is gone.
func (s *Store) checkLeases(ctx context.Context, groups []*group) {
	used := map[*etcdLease]bool{}
	for _, g := range groups {
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

// takeAnswer handles etcd's answer to a group. The group is finished, or has a
// newer view afterwards.
func (s *Store) takeAnswer(g *group, revision int64, resp *etcdserverpb.TxnResponse) {
	if g.step == writing && resp.Succeeded {
		s.readQueue(g, resp.Responses, revision)
		s.wrote(g, revision)
		if g.granted {
			s.sweeping.Granted()
		}
		s.finish(g)
		return
	}
	v, err := s.parse(g.key, resp.Responses, revision)
	if err != nil {
		fail([]*group{g}, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.held[g.key]; g.step == writing && len(resp.Responses) > 2 { // a store has left the queue
		v.next = s.successors(g.key, resp.Responses[2])
	} else if old != nil && v.own != nil && old.stored.rec.Grant == v.stored.rec.Grant {
		v.next = old.next
	}
	newest := s.remember(g.key, v)
	if newest != v && newest == g.view {
		// It was cached before this read. So etcd was restored meanwhile.
		delete(s.views, g.key)
		delete(s.held, g.key)
		newest = s.remember(g.key, v)
	}
	// Otherwise a newer view means that the answer was overtaken: this store
	// may have released the key meanwhile.
	g.view, g.fresh = newest, true
}

// successors returns the stores that a read of a queue has found.
func (s *Store) successors(key string, read *etcdserverpb.ResponseOp) (next successors) {
	for n, kv := range read.GetResponseRange().Kvs {
		next[n] = s.names.waiting(key, string(kv.Key))
	}
	return next
}

// readQueue finds the waiting stores in the answers to a write.
func (s *Store) readQueue(g *group, answers []*etcdserverpb.ResponseOp, revision int64) {
	if g.ops.head >= 0 {
		g.ops.next = s.successors(g.key, answers[g.ops.head])
		switch freed := !carried(&g.next.rec); {
		case freed && g.ops.next[0] != 0:
			s.offerLater(g.next, revision, g.ops.next)
		case !freed:
			s.listener.left(g.key, revision)
		}
	}
	for i, req := range g.requests {
		waits := g.ops.next[0] != 0 && g.ops.next[0] != s.id
		g.answers[i].Awaited = waits && req.Verb == tenure.Release && g.answers[i].Err == nil
	}
}
