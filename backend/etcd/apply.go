package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Apply carries out requests: a hundred keys in one transaction, more of them side by side. What this store holds, or has seen freed, is changed in one round trip; what is not as it was last seen comes back with that
// answer, and is decided again. A request that ctx's end overtakes may still take effect after Apply has returned; its answer is unknown, and the law makes sending it again safe.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := make([]store.Answer, len(requests))
	lanes := split(requests, answers)
	if len(lanes) == 0 {
		return answers
	}
	s.calls.Add(1) // before it is seen whether the store is closed: Close looks the other way round
	defer s.calls.Add(-1)
	if err := s.usable(ctx); err != nil {
		for _, l := range lanes {
			l.fail(err)
		}
	} else {
		s.carryOut(ctx, lanes)
	}
	for _, l := range lanes {
		for k, i := range l.indexes {
			answers[i] = l.answers[k]
		}
	}
	return answers
}

// split divides a batch into lanes; invalid requests are answered.
func split(requests []tenure.Request, answers []store.Answer) []*lane {
	lanes := make([]*lane, 0, len(requests))
	byKey := make(map[string]*lane, len(requests))
	room, indexes := make([]lane, len(requests)), make([]int, len(requests))
	for i := range requests {
		req := &requests[i]
		if err := req.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		indexes[i] = i
		if l := byKey[req.Key]; l != nil {
			l.requests, l.indexes, l.answers = append(l.requests, *req), append(l.indexes, i), append(l.answers, store.Answer{})
			continue
		}
		l := &room[i]
		l.key = req.Key
		l.requests, l.indexes, l.answers = requests[i:i+1:i+1], indexes[i:i+1:i+1], answers[i:i+1:i+1] // its own if more are added
		byKey[req.Key] = l
		lanes = append(lanes, l)
	}
	return lanes
}

// carryOut works on lanes, round by round, until all are finished.
func (s *Store) carryOut(ctx context.Context, lanes []*lane) {
	lanes = slices.Clone(lanes)
	for _, l := range lanes {
		l.view = s.known(l.key)
	}
	if len(lanes) == 1 {
		s.meet(ctx, lanes[0])
	}
	for round := 0; len(lanes) > 0; round++ {
		if err := pause(ctx, round); err != nil {
			for _, l := range lanes {
				l.fail(err)
			}
			return
		}
		for _, l := range lanes {
			s.decide(l)
			if l.step != finished {
				continue
			}
			if err := s.assure(ctx, l); err != nil {
				l.fail(err)
				continue
			}
			l.finish()
			if l.requests[0].Verb == tenure.Acquire && errors.Is(l.answers[0].Err, tenure.ErrHeld) {
				s.requeue(&l.requests[0])
			}
		}
		lanes = slices.DeleteFunc(lanes, func(l *lane) bool { return l.step == finished })
		if len(lanes) == 0 {
			return
		}
		if len(lanes) == 1 && lanes[0].yields == mostYields && lanes[0].step == looking && lanes[0].sure { // it came upon the key between two others
			if err := sleep(ctx, headStart); err != nil {
				lanes[0].fail(err)
				return
			}
		}
		batches := s.batches(s.moor(ctx, lanes))
		if len(batches) == 1 {
			s.send(ctx, batches[0])
		} else {
			var all sync.WaitGroup
			for _, b := range batches {
				all.Go(func() { s.send(ctx, b) })
			}
			all.Wait()
		}
		lanes = slices.DeleteFunc(lanes, func(l *lane) bool { return l.step == finished })
	}
}

// pause is the time before a round: none before the first few, then short and random, so that contenders do not meet again and again.
func pause(ctx context.Context, round int) error {
	if ctx.Err() != nil {
		return over(ctx)
	}
	if round < 4 {
		return nil
	}
	return sleep(ctx, rand.N(min(time.Millisecond<<min(round-4, 6), 50*time.Millisecond)))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return over(ctx)
	}
}

// moor finds the anchors for what is to be written, and has those granted that are not there yet. Keys that nothing is known of are looked at meanwhile: a round trip saved for those that are not new. It returns the
// lanes that can go on at once.
func (s *Store) moor(ctx context.Context, lanes []*lane) []*lane {
	granting := map[*anchor][]*lane{}
	var ready, unknown []*lane
	for _, l := range lanes {
		if l.step != writing || l.next.rec.State == tenure.Free || l.stays || l.heir != nil {
			ready = append(ready, l)
			continue
		}
		l.anchor = s.anchorFor(class(max(l.next.rec.TTL, l.next.rec.Deadline.Sub(l.now))))
		switch {
		case s.granted(l.anchor):
			ready = append(ready, l)
		case l.view.mod == 0 && !l.sure:
			granting[l.anchor] = append(granting[l.anchor], l)
			unknown = append(unknown, l)
		default:
			granting[l.anchor] = append(granting[l.anchor], l)
			ready = append(ready, l)
		}
	}
	if len(granting) == 0 {
		return ready
	}
	var all sync.WaitGroup
	errs := map[*anchor]error{}
	var mu sync.Mutex
	for a := range granting {
		all.Go(func() {
			if err := s.cover(ctx, a, 0); err != nil {
				mu.Lock()
				errs[a] = err
				mu.Unlock()
			}
		})
	}
	for part := range slices.Chunk(unknown, mostLanes) {
		for _, l := range part {
			l.step, l.look = looking, look{key: l.key, shelf: true}
		}
		all.Go(func() { s.send(ctx, &batch{lanes: part}) })
	}
	all.Wait()
	for a, err := range errs {
		for _, l := range granting[a] {
			l.fail(err)
		}
	}
	return ready
}

// results are the keys that the operations of a transaction have read, one list for each.
func results(responses []*etcdserverpb.ResponseOp) [][]*mvccpb.KeyValue {
	out := make([][]*mvccpb.KeyValue, len(responses))
	for i, r := range responses {
		if found := r.GetResponseRange(); found != nil {
			out[i] = found.Kvs
		}
	}
	return out
}
