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
		for _, g := range groups {
			g.fail(err)
		}
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

// split divides requests into groups by key. It answers invalid requests.
func split(requests []tenure.Request, answers []store.Answer) []*group {
	groups := make([]*group, 0, len(requests))
	byKey := make(map[string]*group, len(requests))
	room, indexes := make([]group, len(requests)), make([]int, len(requests))
	for i := range requests {
		req := &requests[i]
		if err := req.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		indexes[i] = i
		if g := byKey[req.Key]; g != nil {
			g.requests, g.indexes = append(g.requests, *req), append(g.indexes, i)
			g.answers = append(g.answers, store.Answer{})
			continue
		}
		g := &room[i]
		g.key = req.Key
		// Their capacity is 1, so appending does not overwrite the neighbours.
		g.requests, g.indexes, g.answers = requests[i:i+1:i+1], indexes[i:i+1:i+1], answers[i:i+1:i+1]
		byKey[req.Key] = g
		groups = append(groups, g)
	}
	return groups
}

// carryOut works on groups, round by round, until all are finished.
func (s *Store) carryOut(ctx context.Context, groups []*group) {
	groups = slices.Clone(groups)
	for _, g := range groups {
		g.view = s.cached(g.key)
	}
	if len(groups) == 1 {
		s.awaitQueueRead(ctx, groups[0])
	}
	for round := 0; len(groups) > 0; round++ {
		if err := pause(ctx, round); err != nil {
			for _, g := range groups {
				g.fail(err)
			}
			return
		}
		for _, g := range groups {
			s.decide(g)
			if g.step != finished {
				continue
			}
			if err := s.ensureHeld(ctx, g); err != nil {
				g.fail(err)
				continue
			}
			g.finish()
			if g.requests[0].Verb == tenure.Acquire && errors.Is(g.answers[0].Err, tenure.ErrHeld) {
				s.requeue(&g.requests[0])
			}
		}
		groups = slices.DeleteFunc(groups, func(g *group) bool { return g.step == finished })
		if len(groups) == 0 {
			return
		}
		// The key is offered to another store. Let that store ask first.
		if len(groups) == 1 && groups[0].yields == maxYields && groups[0].step == looking && groups[0].confirmed {
			if err := clock.Sleep(ctx, headStart); err != nil {
				groups[0].fail(err)
				return
			}
		}
		batches := s.batches(s.grantMissing(ctx, groups))
		if len(batches) == 1 {
			s.send(ctx, batches[0])
		} else {
			var all sync.WaitGroup
			for _, b := range batches {
				all.Go(func() { s.send(ctx, b) })
			}
			all.Wait()
		}
		groups = slices.DeleteFunc(groups, func(g *group) bool { return g.step == finished })
	}
}

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

// grantMissing finds the etcd leases for the records to write, and has etcd
// grant those that are missing. Meanwhile it reads the keys of which nothing is
// known. That saves a round trip if they have a record. It returns the groups
// that can go on at once.
func (s *Store) grantMissing(ctx context.Context, groups []*group) []*group {
	granting := map[*etcdLease][]*group{}
	var ready, unknown []*group
	for _, g := range groups {
		if g.step != writing || g.next.rec.State == tenure.Free || g.keepsLease || g.awardTo != nil {
			ready = append(ready, g)
			continue
		}
		g.etcdLease = s.etcdLeaseFor(leaseSeconds(max(g.next.rec.TTL, g.next.rec.Deadline.Sub(g.now))))
		switch {
		case s.isGranted(g.etcdLease):
			ready = append(ready, g)
		case g.view.mod == 0 && !g.confirmed:
			granting[g.etcdLease] = append(granting[g.etcdLease], g)
			unknown = append(unknown, g)
		default:
			granting[g.etcdLease] = append(granting[g.etcdLease], g)
			ready = append(ready, g)
		}
	}
	if len(granting) == 0 {
		return ready
	}
	var all sync.WaitGroup
	errs := map[*etcdLease]error{}
	var mu sync.Mutex
	for a := range granting {
		all.Go(func() {
			if err := s.extendLease(ctx, a, 0); err != nil {
				mu.Lock()
				errs[a] = err
				mu.Unlock()
			}
		})
	}
	for part := range slices.Chunk(unknown, maxGroups) {
		for _, g := range part {
			g.step, g.lookup = looking, lookup{key: g.key, shelf: true}
		}
		all.Go(func() { s.send(ctx, &batch{groups: part}) })
	}
	all.Wait()
	for a, err := range errs {
		for _, g := range granting[a] {
			g.fail(err)
		}
	}
	return ready
}

// results returns what the reads of a transaction have found: one list of etcd
// keys for each operation.
func results(responses []*etcdserverpb.ResponseOp) [][]*mvccpb.KeyValue {
	out := make([][]*mvccpb.KeyValue, len(responses))
	for i, r := range responses {
		if found := r.GetResponseRange(); found != nil {
			out[i] = found.Kvs
		}
	}
	return out
}
