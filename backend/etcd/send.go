package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/tenure"
)

// errAnchorLost is why a grant is not answered whose etcd lease expired at the same moment.
var errAnchorLost = errors.New("etcd: the etcd lease expired while it was in use; ask again")

// send makes one transaction of a batch and takes in what it answers. Lanes that are not finished then have a newer view.
func (s *Store) send(ctx context.Context, b *batch) {
	if err := b.enter(ctx); err != nil {
		s.undo(b, true)
		b.fail(err)
		return
	}
	defer b.exit(len(b.pages))
	t := s.build(b)
	keeping := s.keep(ctx, b)
	resp, err := s.txn(ctx, t.compares, t.then, t.otherwise)
	uncovered := keeping()
	switch {
	case leaseGone(err): // an anchor was to be planted and has expired: nothing was done
		for _, a := range t.planting {
			s.lost(a)
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
		for _, a := range t.planting {
			a.planted = true
		}
		for i, p := range b.pages {
			if r := resp.Responses[t.pages+i].GetResponseTxn(); r == nil || r.Succeeded {
				p.there, p.mod = true, resp.Header.Revision
				s.setAlarm(p)
			}
		}
		s.mu.Unlock()
	}
	for i, l := range b.lanes {
		s.take(l, resp.Header.Revision, t.answer(resp, i))
		if err := uncovered[l.anchor]; l.anchor != nil && err != nil && l.step == finished {
			l.fail(err)
		}
	}
	if t.freed && resp.Succeeded {
		s.offer(b, resp.Header.Revision, resp.Responses[len(resp.Responses)-1].GetResponseRange())
	}
}

// transaction is what a batch is sent as: a transaction of its own for every lane within it, or the lane itself if there is only one.
type transaction struct {
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
	planting        []*anchor
	pages           int // where the operations of the pages begin
	lanes           int // and those of the lanes
	freed           bool
	single          bool
}

// answer is what etcd says of a lane.
func (t *transaction) answer(resp *clientv3.TxnResponse, lane int) *etcdserverpb.TxnResponse {
	if !t.single {
		return resp.Responses[t.lanes+lane].GetResponseTxn()
	}
	out := &etcdserverpb.TxnResponse{Succeeded: resp.Succeeded, Responses: resp.Responses}
	if resp.Succeeded {
		out.Responses = resp.Responses[t.lanes:]
	}
	return out
}

// build makes the operations of a batch: live keys to plant, pages to write, and what each lane does.
func (s *Store) build(b *batch) *transaction {
	t := &transaction{single: len(b.lanes) == 1}
	s.mu.Lock()
	for _, l := range b.lanes {
		if a := l.anchor; l.step == writing && a != nil && !a.planted && !slices.Contains(t.planting, a) {
			t.planting = append(t.planting, a)
			t.then = append(t.then, clientv3.OpPut(s.names.live(a.id), "", clientv3.WithLease(a.id)))
		}
	}
	t.pages = len(t.then)
	for _, p := range b.pages {
		t.then = append(t.then, s.note(b, p, t.single))
	}
	s.mu.Unlock()
	t.lanes = len(t.then)
	for _, l := range b.lanes {
		l.plants = slices.Contains(t.planting, l.anchor)
		compares, then, otherwise := s.operations(l)
		t.freed = t.freed || l.step == writing && l.next.rec.State == tenure.Free
		if t.single {
			t.compares, t.then, t.otherwise = compares, append(t.then, then...), otherwise
		} else {
			t.then = append(t.then, clientv3.OpTxn(compares, then, otherwise))
		}
	}
	if t.freed { // one look at whoever waits for anything: mostly nobody
		t.then = append(t.then, clientv3.OpGet(s.names.queues(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(mostWaiting)))
	}
	return t
}

// note writes a page with the renewals of a batch. The caller holds the mutex.
func (s *Store) note(b *batch, p *openPage, single bool) clientv3.Op {
	renewed := make(map[int]time.Time, len(b.lanes))
	for _, l := range b.lanes {
		if l.step == renewing && l.page == p {
			renewed[l.view.deed.slot] = l.now
		}
	}
	put := clientv3.OpPut(s.names.page(p.id), p.content(s, s.now(), renewed))
	if single { // the lane's own conditions say as much
		return put
	}
	return clientv3.OpTxn(s.writable(p.id, p.anchor, p.mod), []clientv3.Op{put}, nil)
}

// operations are what a lane wants done, and on what conditions.
func (s *Store) operations(l *lane) (compares []clientv3.Cmp, then, otherwise []clientv3.Op) {
	switch l.step {
	case writing:
		then = append(s.handOver(l), clientv3.OpPut(s.names.record(l.key), l.next.encode()))
		otherwise = l.look.ops(s.names)
		if l.next.lease != 0 {
			otherwise = append(otherwise, clientv3.OpGet(s.names.live(l.next.lease), clientv3.WithKeysOnly()))
		}
		return s.compares(l), then, otherwise
	case renewing:
		unchanged := clientv3.Compare(clientv3.ModRevision(s.names.record(l.key)), "=", l.view.mod)
		s.mu.Lock()
		mod := l.page.mod
		s.mu.Unlock()
		return append(s.writable(l.page.id, l.anchor, mod), unchanged), nil, l.look.ops(s.names)
	}
	return nil, l.look.ops(s.names), nil
}

// writable are the conditions of every writing of a page: that its anchor lives, and that the page is as this store wrote it last. So a writing that was given up, and reaches etcd late, takes back no renewal
// that was confirmed after it.
func (s *Store) writable(p pageID, a *anchor, mod int64) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(s.names.live(a.id)), ">", 0),
		clientv3.Compare(clientv3.ModRevision(s.names.page(p)), "=", mod),
	}
}

// keep begins to make sure that etcd keeps the anchors of a batch for as long as its answers will say. The function it returns waits for that, and tells of which anchors it is not sure.
func (s *Store) keep(ctx context.Context, b *batch) func() map[*anchor]error {
	var need map[*anchor]time.Duration
	for _, l := range b.lanes {
		var d time.Duration
		switch {
		case l.step == writing && l.anchor != nil:
			d = l.next.rec.Deadline.Sub(l.now)
		case l.step == renewing:
			d = l.view.deed.rec.TTL
		default:
			continue
		}
		if !s.covers(l.anchor, d) {
			if need == nil {
				need = map[*anchor]time.Duration{}
			}
			need[l.anchor] = max(need[l.anchor], d)
		}
	}
	if need == nil {
		return func() map[*anchor]error { return nil }
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	failed := map[*anchor]error{}
	for a, d := range need {
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

// enter waits until nobody else writes the pages of a batch. They are in order, so that no two wait for each other.
func (b *batch) enter(ctx context.Context) error {
	for n, p := range b.pages {
		select {
		case p.turn <- struct{}{}:
		case <-ctx.Done():
			b.exit(n)
			return over(ctx)
		}
	}
	return nil
}

// exit lets others write the first n pages.
func (b *batch) exit(n int) {
	for _, p := range b.pages[:n] {
		<-p.turn
	}
}

// fail ends all lanes of a batch without an answer.
func (b *batch) fail(err error) {
	for _, l := range b.lanes {
		l.fail(err)
	}
}

// undo gives up what was reserved for a batch.
func (s *Store) undo(b *batch, known bool) {
	for _, l := range b.lanes {
		if l.step == writing {
			s.unsettle(l, known)
		}
	}
}
