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
		if slices.ContainsFunc(b.lanes, func(l *lane) bool { return l.joins != nil }) {
			s.lost(s.anchorFor(class(s.queueFor)))
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
	if t.form == joint && !resp.Succeeded {
		s.wary.Store(waryFor)
	}
	for i, l := range b.lanes {
		l.wary = t.form == joint
		s.take(l, resp.Header.Revision, t.answer(resp, i))
		if err := uncovered[l.anchor]; l.anchor != nil && err != nil && l.step == finished {
			l.fail(err)
		}
	}
	if t.freed && resp.Succeeded {
		s.offer(b, resp.Header.Revision, resp.Responses[len(resp.Responses)-1].GetResponseRange())
	}
}

// transaction is what a batch is sent as. All lanes are carried out or none, if they are likely to find what they expect, or each is a transaction of its own within it.
type transaction struct {
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
	planting        []*anchor
	pages           int   // where the operations of the pages begin
	lanes           []int // and those of each lane, and where the last end
	freed           bool
	form            form
}

type form int

const (
	nested form = iota // a transaction for each lane
	single             // there is only one
	joint              // all lanes or none
)

const (
	// waryFor is how many batches are sent lane by lane after a joint one has failed: others are at work on the same keys.
	waryFor = 32
	// recent is for how long it is unlikely that others have changed a key so often that its shelf is another one.
	recent = time.Second
)

// answer is what etcd says of a lane.
func (t *transaction) answer(resp *clientv3.TxnResponse, lane int) *etcdserverpb.TxnResponse {
	switch {
	case t.form == nested:
		return resp.Responses[t.lanes[lane]].GetResponseTxn()
	case resp.Succeeded:
		return &etcdserverpb.TxnResponse{Succeeded: true, Responses: resp.Responses[t.lanes[lane]:t.lanes[lane+1]]}
	case t.form == joint:
		if both := resp.Responses[lane].GetResponseTxn(); both != nil {
			return &etcdserverpb.TxnResponse{Responses: both.Responses}
		}
		return &etcdserverpb.TxnResponse{Responses: resp.Responses[lane : lane+1]}
	}
	return &etcdserverpb.TxnResponse{Responses: resp.Responses}
}

// build makes the operations of a batch: live keys to plant, pages to write, and what each lane does.
func (s *Store) build(b *batch) *transaction {
	t := &transaction{form: s.formOf(b), lanes: make([]int, 0, len(b.lanes)+1)}
	t.then = make([]clientv3.Op, 0, len(b.lanes)+len(b.lanes)/4+len(b.pages)+2)
	s.mu.Lock()
	for i, l := range b.lanes {
		l.number = i
		if a := l.anchor; l.step == writing && a != nil && !a.planted && !slices.Contains(t.planting, a) {
			t.planting = append(t.planting, a)
			t.then = append(t.then, clientv3.OpPut(s.names.live(a.id), "", clientv3.WithLease(a.id)))
		}
	}
	t.pages = len(t.then)
	for _, p := range b.pages {
		t.then = append(t.then, s.note(b, p, t.form == single))
	}
	s.mu.Unlock()
	if t.form == joint && !s.join(b, t) {
		t.form, t.compares, t.then, t.otherwise, t.lanes = nested, nil, t.then[:t.pages], nil, t.lanes[:0]
	}
	for _, l := range b.lanes {
		if t.form != joint {
			l.plants = slices.Contains(t.planting, l.anchor)
			t.lanes = append(t.lanes, len(t.then))
			compares, then, otherwise := s.operations(l)
			if t.form == single {
				t.compares, t.then, t.otherwise = compares, append(t.then, then...), otherwise
			} else {
				t.then = append(t.then, clientv3.OpTxn(compares, then, otherwise))
			}
		}
		t.freed = t.freed || l.step == writing && l.next.rec.State == tenure.Free && l.told == toNobody
	}
	t.lanes = append(t.lanes, len(t.then))
	if t.freed { // one look at whoever waits for anything: mostly nobody
		t.then = append(t.then, clientv3.OpGet(s.names.queues(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(mostWaiting)))
	}
	return t
}

// formOf chooses how a batch is sent. A transaction within a transaction costs etcd about as much again as what it does, so lanes are joined that only write, and have not just found what they did not expect.
func (s *Store) formOf(b *batch) form {
	if len(b.lanes) == 1 {
		return single
	}
	if len(b.pages) > 0 {
		return nested
	}
	for _, l := range b.lanes {
		if l.step != writing || l.expired || l.wary {
			return nested
		}
	}
	if s.wary.Load() > 0 {
		s.wary.Add(-1)
		return nested
	}
	return joint
}

// join makes one transaction of all lanes, if etcd takes it.
func (s *Store) join(b *batch, t *transaction) bool {
	t.compares, t.otherwise = make([]clientv3.Cmp, 0, len(b.lanes)+2), make([]clientv3.Op, 0, len(b.lanes))
	var anchors []*anchor
	for _, l := range b.lanes {
		l.plants = slices.Contains(t.planting, l.anchor)
		if l.anchor != nil && !l.plants && !slices.Contains(anchors, l.anchor) {
			anchors = append(anchors, l.anchor)
			t.compares = append(t.compares, s.lives(l.anchor.id))
		}
		t.lanes = append(t.lanes, len(t.then))
		name := s.names.record(l.key)
		t.compares = append(t.compares, clientv3.Compare(clientv3.ModRevision(name), "=", l.view.mod))
		if l.heir != nil {
			t.compares = append(t.compares, s.inherits(l.key, l.heir)...)
		}
		t.then = s.change(t.then, l, name)
		l.look = look{key: l.key, shelf: l.view.deed == nil || time.Since(l.view.at) > recent}
		if l.look.shelf {
			t.otherwise = append(t.otherwise, clientv3.OpTxn(nil, l.look.ops(s.names), nil))
		} else {
			t.otherwise = append(t.otherwise, clientv3.OpGet(name))
		}
	}
	return len(t.then) < mostOps && len(t.compares) <= mostOps
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
		if l.old == nil || l.old.lease == 0 || !l.expired && s.isMine(l.old) {
			l.look = look{key: l.key, shelf: true} // it hangs on nothing, or on what this store knows
		}
		otherwise = l.look.ops(s.names)
		if l.expired {
			otherwise = append(otherwise, clientv3.OpGet(s.names.live(l.next.lease), clientv3.WithKeysOnly()))
		}
		return s.compares(l), s.change(nil, l, s.names.record(l.key)), otherwise
	case renewing:
		unchanged := clientv3.Compare(clientv3.ModRevision(s.names.record(l.key)), "=", l.view.mod)
		s.mu.Lock()
		mod := l.page.mod
		s.mu.Unlock()
		return append(s.writable(l.page.id, l.anchor, mod), unchanged), nil, l.look.ops(s.names)
	}
	return nil, append(l.look.ops(s.names), s.joining(l)...), nil
}

// change adds to operations those that write a lane's record and tell those who wait.
func (s *Store) change(ops []clientv3.Op, l *lane, name string) []clientv3.Op {
	before, after := s.handOver(l)
	value := l.value()
	if l.byHand() {
		ops = append(ops, s.notice(l))
	}
	if l.shelf != "" {
		ops = append(ops, clientv3.OpPut(s.names.shelf(l.key), l.shelf))
	}
	return append(append(append(ops, before...), clientv3.OpPut(name, value)), after...)
}

func (s *Store) lives(id clientv3.LeaseID) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.names.live(id)), ">", 0)
}

// writable are the conditions of every writing of a page: that its anchor lives, and that the page is as this store wrote it last. So a writing that was given up, and reaches etcd late, takes back no renewal
// that was confirmed after it.
func (s *Store) writable(p pageID, a *anchor, mod int64) []clientv3.Cmp {
	return []clientv3.Cmp{
		s.lives(a.id),
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
		s.mu.Lock()
		sure := !l.anchor.gone && l.anchor.left() >= d // one that was given up a moment ago is kept alive by nobody, though its live key may still be there
		s.mu.Unlock()
		if !sure {
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
		s.unjoin(l, known)
	}
}
