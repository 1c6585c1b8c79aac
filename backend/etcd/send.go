package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// errAnchorLost is why a grant is not answered whose etcd lease expired at the same moment.
var errAnchorLost = errors.New("etcd: the etcd lease expired while it was in use; ask again")

// send makes one transaction of a batch and takes in what it answers. Lanes that are not finished then have a newer view.
func (s *Store) send(ctx context.Context, b *batch) {
	for _, p := range b.pages {
		select {
		case p.turn <- struct{}{}:
			defer func() { <-p.turn }()
		case <-ctx.Done():
			b.fail(over(ctx))
			return
		}
	}
	t := s.build(b)
	keeping := s.keep(ctx, b)
	resp, err := s.txn(ctx, nil, t.ops, nil)
	uncovered := keeping()
	switch {
	case leaseGone(err): // an anchor was to be planted and has expired: nothing was done
		for _, a := range t.planting {
			s.lost(a)
		}
		b.undo()
		return
	case err != nil:
		b.undo()
		b.fail(err)
		return
	}
	s.mu.Lock()
	for _, a := range t.planting {
		a.planted = true
	}
	for i, p := range b.pages {
		if resp.Responses[t.pages+i].GetResponseTxn().Succeeded {
			p.there, p.mod = true, resp.Header.Revision
			s.setAlarm(p)
		}
	}
	s.mu.Unlock()
	for i, l := range b.lanes {
		s.take(l, resp.Header.Revision, resp.Responses[t.lanes+i].GetResponseTxn())
		if err := uncovered[l.anchor]; l.anchor != nil && err != nil && l.step == finished {
			l.fail(err)
		}
	}
	if t.freed {
		s.offer(b, resp.Responses[len(resp.Responses)-1].GetResponseRange())
	}
}

// transaction is what a batch is sent as.
type transaction struct {
	ops      []clientv3.Op
	planting []*anchor
	pages    int // where the operations of the pages begin
	lanes    int // and those of the lanes
	freed    bool
}

// build makes the operations of a batch: live keys to plant, pages to write, and a transaction of its own for every lane.
func (s *Store) build(b *batch) *transaction {
	t := &transaction{}
	plants := map[*anchor]bool{}
	s.mu.Lock()
	for _, l := range b.lanes {
		if a := l.anchor; l.step == writing && a != nil && !a.planted && !plants[a] {
			plants[a] = true
			t.planting = append(t.planting, a)
			t.ops = append(t.ops, clientv3.OpPut(s.names.live(a.id), "", clientv3.WithLease(a.id)))
		}
	}
	t.pages = len(t.ops)
	now := s.now()
	for _, p := range b.pages {
		renewed := map[int]time.Time{}
		for _, l := range b.lanes {
			if l.step == renewing && l.page == p {
				renewed[l.view.deed.slot] = l.now
			}
		}
		t.ops = append(t.ops, clientv3.OpTxn(s.alive(p.anchor), []clientv3.Op{clientv3.OpPut(s.names.page(p.id), p.content(s, now, renewed))}, nil))
	}
	s.mu.Unlock()
	t.lanes = len(t.ops)
	for _, l := range b.lanes {
		switch l.step {
		case writing:
			then := s.handOver(l)
			if l.next.rec.State == tenure.Free {
				t.freed = true
			}
			then = append(then, clientv3.OpPut(s.names.record(l.key), l.next.encode()))
			otherwise := l.look.ops(s.names)
			if l.next.lease != 0 {
				otherwise = append(otherwise, clientv3.OpGet(s.names.live(l.next.lease), clientv3.WithKeysOnly()))
			}
			t.ops = append(t.ops, clientv3.OpTxn(s.compares(l, plants[l.anchor]), then, otherwise))
		case renewing:
			unchanged := append(s.alive(l.anchor), clientv3.Compare(clientv3.ModRevision(s.names.record(l.key)), "=", l.view.mod))
			t.ops = append(t.ops, clientv3.OpTxn(unchanged, nil, l.look.ops(s.names)))
		default:
			t.ops = append(t.ops, clientv3.OpTxn(nil, l.look.ops(s.names), nil))
		}
	}
	if t.freed { // one look at whoever waits for anything: mostly nobody
		t.ops = append(t.ops, clientv3.OpGet(s.names.queues(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(mostWaiting)))
	}
	return t
}

func (s *Store) alive(a *anchor) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.names.live(a.id)), ">", 0)}
}

// keep begins to make sure that etcd keeps the anchors of a batch for as long as its answers will say. The function it returns waits for that, and tells of which anchors it is not sure.
func (s *Store) keep(ctx context.Context, b *batch) func() map[*anchor]error {
	need := map[*anchor]time.Duration{}
	for _, l := range b.lanes {
		switch l.step {
		case writing:
			if l.next.lease != 0 {
				need[l.anchor] = max(need[l.anchor], l.next.rec.Deadline.Sub(l.now))
			}
		case renewing:
			need[l.anchor] = max(need[l.anchor], l.view.deed.rec.TTL)
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	failed := map[*anchor]error{}
	for a, d := range need {
		if s.covers(a, d) {
			continue
		}
		all.Go(func() {
			err := s.cover(ctx, a, d)
			s.mu.Lock()
			if err == nil && a.gone {
				err = errAnchorLost
			}
			s.mu.Unlock()
			if err != nil {
				mu.Lock()
				failed[a] = err
				mu.Unlock()
			}
		})
	}
	return func() map[*anchor]error {
		all.Wait()
		return failed
	}
}

// fail ends all lanes of a batch without an answer.
func (b *batch) fail(err error) {
	for _, l := range b.lanes {
		l.fail(err)
	}
}

// undo lets go of what was reserved for writes that did not happen. If it is not known whether they did, that is harmless: what is in etcd then hangs on a slot that is not renewed.
func (b *batch) undo() {
	for _, l := range b.lanes {
		if l.step == writing {
			l.done()
		}
	}
}
