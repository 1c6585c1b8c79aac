package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// The largest call, in requests, and how many keys that others had locked are asked for at a time.
const (
	largestCall = 500
	patients    = 4
)

// errLocked is why a request has no answer whose row another transaction kept.
var errLocked = errors.New("postgres: another transaction has this key's row locked; ask again, and look for it in pg_stat_activity if it stays")

// batch is requests under way: indexes into the caller's slice, those of one key together and in their order.
type batch struct {
	requests []tenure.Request
	answers  []store.Answer
}

// Apply carries out requests in one round trip for every 500, whatever their verbs. Keys that another transaction has locked are then asked for again, each
// alone, waiting for at most LockWait.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	b := &batch{requests: requests, answers: make([]store.Answer, len(requests))}
	var todo []int
	for i, req := range requests {
		if err := req.Check(); err != nil {
			b.answers[i].Err = err
			continue
		}
		todo = append(todo, i)
	}
	if len(todo) == 0 {
		return b.answers
	}
	slices.SortStableFunc(todo, func(i, j int) int { return cmp.Compare(requests[i].Key, requests[j].Key) })
	if err := s.usable(ctx); err != nil {
		b.fail(todo, err)
		return b.answers
	}
	var again []int
	for len(todo) > 0 {
		n := b.cut(todo)
		again = append(again, s.call(ctx, b, todo[:n], b.oneKey(todo[:n]))...)
		todo = todo[n:]
	}
	s.askAlone(ctx, b, again)
	for i, a := range b.answers {
		if a.Err == nil && (requests[i].Verb == tenure.Acquire || requests[i].Verb.ByHand()) {
			s.sweepByChance()
		}
	}
	return b.answers
}

// cut is how many of the requests make the next call: all requests of a key are in one, so that they keep their order.
func (b *batch) cut(todo []int) int {
	n := min(len(todo), largestCall)
	for n < len(todo) && b.requests[todo[n]].Key == b.requests[todo[n-1]].Key {
		n++
	}
	return n
}

// oneKey reports whether all are on one key: then nobody is delayed by waiting for it.
func (b *batch) oneKey(todo []int) bool {
	return b.requests[todo[0]].Key == b.requests[todo[len(todo)-1]].Key
}

func (b *batch) fail(todo []int, err error) {
	for _, i := range todo {
		b.answers[i] = store.Answer{Err: store.Unknown(err)}
	}
}

// askAlone asks again for keys that were skipped, a few at a time, each in a call of its own that waits for the row.
func (s *Store) askAlone(ctx context.Context, b *batch, skipped []int) {
	if len(skipped) == 0 {
		return
	}
	var all sync.WaitGroup
	turn := make(chan struct{}, patients)
	for len(skipped) > 0 {
		n := 1
		for n < len(skipped) && b.requests[skipped[n]].Key == b.requests[skipped[0]].Key {
			n++
		}
		lane := skipped[:n]
		skipped = skipped[n:]
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			b.fail(s.call(ctx, b, lane, true), errLocked)
		})
	}
	all.Wait()
}

// call sends requests in one round trip and returns those that were skipped; every other has its answer. A patient call is for a single key, and waits for its row.
func (s *Store) call(ctx context.Context, b *batch, todo []int, patient bool) (skipped []int) {
	order, text := todo, s.sql.applyOne
	args := []any{s.setAt(), s.waitMillis(), b.requests[todo[0]].Key}
	if !patient {
		var claims, ends []int32
		order, claims, ends = b.waves(todo)
		args, text = []any{s.setAt(), s.waitMillis(), claims, ends}, s.sql.apply
	}
	args, err := b.arguments(args, order, patient)
	if err != nil {
		b.fail(todo, err)
		return nil
	}
	err = s.run(ctx, func(ctx context.Context) error {
		skipped = skipped[:0]
		rows, err := s.pool.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		return b.read(rows, order, &skipped)
	})
	switch {
	case err == nil:
		slices.SortFunc(skipped, func(i, j int) int {
			return cmp.Or(cmp.Compare(b.requests[i].Key, b.requests[j].Key), cmp.Compare(i, j))
		})
		return skipped
	case hasCode(err, lockTimeout) && !patient:
		return todo // somebody is just making one of these keys, or has locked the table: none has changed, each is asked for alone
	}
	b.fail(todo, explain(ctx, err))
	return nil
}

// waves puts requests into the order in which the function for many keys takes them: in each wave a key occurs once, its acquires come first, each part is ordered by key. todo has
// the requests of a key together and in their order.
func (b *batch) waves(todo []int) (order []int, claims, ends []int32) {
	var waves [][2][]int // of each wave: the acquires, the others
	depth := 0
	for n, i := range todo {
		depth++
		if n == 0 || b.requests[i].Key != b.requests[todo[n-1]].Key {
			depth = 1
		}
		if len(waves) < depth {
			waves = append(waves, [2][]int{})
		}
		part := 1
		if b.requests[i].Verb == tenure.Acquire {
			part = 0
		}
		waves[depth-1][part] = append(waves[depth-1][part], i)
	}
	for _, w := range waves {
		order = append(order, w[0]...)
		claims = append(claims, int32(len(order)))
		order = append(order, w[1]...)
		ends = append(ends, int32(len(order)))
	}
	return order, claims, ends
}

// arguments adds to args what both functions take: one array for each field of a request. That for a single key has its key already.
func (b *batch) arguments(args []any, todo []int, oneKey bool) ([]any, error) {
	n := len(todo)
	texts := func() []string { return make([]string, n) }
	numbers := func() []int64 { return make([]int64, n) }
	verbs, keys, grants, owners, instances, guards, progresses, actors, notes := texts(), texts(), texts(), texts(), texts(), texts(), texts(), texts(), texts()
	ttls, aboves, everys, holds := numbers(), numbers(), numbers(), numbers()
	resumes, faileds := make([]bool, n), make([]bool, n)
	for k, i := range todo {
		req := &b.requests[i]
		verbs[k], keys[k], grants[k] = string(req.Verb), req.Key, string(req.Secret.Grant())
		owners[k], instances[k], progresses[k], actors[k], notes[k] = req.Owner, req.Instance, req.Progress, req.Actor, req.Note
		ttls[k], aboves[k], everys[k], holds[k] = micro(req.TTL), int64(req.Above), micro(req.Every), micro(req.HoldFor)
		resumes[k], faileds[k] = req.Resume, req.Failed
		if len(req.Guards) > 0 {
			text, err := json.Marshal(req.Guards)
			if err != nil {
				return nil, err
			}
			guards[k] = string(text)
		}
	}
	args = append(args, verbs)
	if !oneKey {
		args = append(args, keys)
	}
	return append(args, grants, owners, instances, ttls, aboves, everys, holds, guards, resumes, progresses, faileds, actors, notes), nil
}

// read turns the rows of a call into answers. A call that fails on the way has changed nothing: it is one transaction.
func (b *batch) read(rows pgx.Rows, todo []int, skipped *[]int) error {
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var i int32
		var verdict string
		var now *int64
		var r row
		if err := rows.Scan(append([]any{&i, &verdict, &now}, r.into()...)...); err != nil {
			return err
		}
		if i < 1 || int(i) > len(todo) {
			return fmt.Errorf("the server answered request %d of %d", i, len(todo))
		}
		seen++
		index := todo[i-1]
		if verdict == "skipped" {
			*skipped = append(*skipped, index)
			continue
		}
		b.answers[index] = answer(b.requests[index], verdict, fromMicro(now), &r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if seen != len(todo) {
		return fmt.Errorf("the server answered %d of %d requests", seen, len(todo))
	}
	return nil
}

// answer is what a row says. Why a request was refused is the law's to say: it is asked about the very record and time the server decided by.
func answer(req tenure.Request, verdict string, now time.Time, r *row) store.Answer {
	rec, err := r.record(req.Key)
	if err != nil {
		return store.Answer{Err: store.Unknown(err)}
	}
	if verdict == "done" {
		return store.Answer{Record: rec, Now: now}
	}
	_, _, err = tenure.Apply(rec, req, now)
	if err == nil {
		return store.Answer{Err: store.Unknown(fmt.Errorf("postgres: the server refused to %s %q and the law does not: the function apply_v1 is not the one this program made; run its migrations", req.Verb, req.Key))}
	}
	return store.Answer{Record: rec, Now: now, Err: err}
}
