package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// largestCall is how many requests one call carries at most.
	largestCall = 500
	// patientCalls is how many calls may wait for a locked row at the same
	// time.
	patientCalls = 4
	// attempts is how often a call is sent if the server gives it up because of
	// another transaction.
	attempts = 8
)

// errLocked answers a request whose row another transaction kept locked.
var errLocked = errors.New("postgres: another transaction has this key's row locked; " +
	"ask again, and look for it in pg_stat_activity if it stays")

// Apply carries out requests, whatever their verbs, in one round trip for every
// 500. It skips keys that another transaction has locked. Then it asks again
// for each of these alone, and waits for at most LockWait.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	b := &batch{requests: requests, answers: make([]store.Answer, len(requests))}
	todo := make([]int, 0, len(requests))
	for i := range requests {
		if err := requests[i].Check(); err != nil {
			b.answers[i].Err = err
			continue
		}
		todo = append(todo, i)
	}
	if len(todo) == 0 {
		return b.answers
	}
	if err := s.usable(ctx); err != nil {
		b.fail(todo, err)
		return b.answers
	}
	s.asking(b, todo)
	var again []int
	if len(todo) == 1 {
		again = s.lone(ctx, b, todo)
	} else {
		slices.SortStableFunc(todo, func(i, j int) int { return cmp.Compare(requests[i].Key, requests[j].Key) })
		for len(todo) > 0 {
			n := b.cut(todo)
			again = append(again, s.call(ctx, b, todo[:n], b.oneKey(todo[:n]))...)
			todo = todo[n:]
		}
	}
	s.askAlone(ctx, b, again)
	s.asked(b)
	for i := range b.answers {
		if b.answers[i].Err == nil && (requests[i].Verb == tenure.Acquire || requests[i].Verb.ByHand()) {
			s.sweeper.Granted()
		}
	}
	return b.answers
}

// lone sends a request that came alone. Usual acquires and all releases have a
// short statement of their own. lone returns the request if call must ask again
// and wait for the row.
func (s *Store) lone(ctx context.Context, b *batch, todo []int) (again []int) {
	req := &b.requests[todo[0]]
	var text string
	var args []any
	switch {
	case req.Verb == tenure.Release:
		text, args = s.sql.release, []any{s.setAt(), s.waitMillis(), req.Key, string(req.Secret.Grant()), req.Failed}
	case req.Verb == tenure.Acquire && req.Above == 0 && req.Every == 0 && req.HoldFor == 0:
		guards, err := guardList(req.Guards)
		if err != nil {
			b.fail(todo, err)
			return nil
		}
		text, args = s.sql.acquire, []any{
			s.setAt(), s.waitMillis(), registered.Milliseconds(), req.Key, string(req.Secret.Grant()),
			req.Owner, req.Instance, micro(req.TTL), guards, b.waiter(todo[0]),
		}
	default:
		return s.call(ctx, b, todo, true)
	}
	var answer string
	err := s.send(ctx, func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, text, args...).Scan(&answer)
		if hasCode(err, serialization) { // a busy key would fail again and again
			err = pgx.BeginTxFunc(ctx, s.pool, readCommitted, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, text, args...).Scan(&answer)
			})
		}
		return err
	})
	if err == nil {
		_, err = b.take(todo, answer)
	}
	if hasCode(err, lockTimeout) || hasCode(err, deadlock) {
		return todo
	}
	if err != nil {
		b.fail(todo, explainStore(ctx, err))
	}
	return nil
}

// askAlone asks again for keys that were skipped. Each key has a call of its
// own, which waits for the row. At most patientCalls calls run at a time.
func (s *Store) askAlone(ctx context.Context, b *batch, skipped []int) {
	if len(skipped) == 0 {
		return
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, patientCalls)
	for len(skipped) > 0 {
		n := 1
		for n < len(skipped) && b.requests[skipped[n]].Key == b.requests[skipped[0]].Key {
			n++
		}
		sameKey := skipped[:n]
		skipped = skipped[n:]
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			b.fail(s.call(ctx, b, sameKey, true), errLocked)
		})
	}
	all.Wait()
}

// call sends requests in one round trip. It returns the requests that the
// server skipped because another transaction has their rows. Every other
// request has its answer. A patient call is for a single key and waits for its
// row.
func (s *Store) call(ctx context.Context, b *batch, todo []int, patient bool) (skipped []int) {
	order, acquires, ends := b.waves(todo)
	args, err := b.arguments(
		[]any{s.setAt(), s.waitMillis(), registered.Milliseconds(), patient, acquires, ends}, order)
	if err != nil {
		b.fail(todo, err)
		return nil
	}
	err = s.send(ctx, func(ctx context.Context) error {
		skipped = skipped[:0]
		rows, err := s.pool.Query(ctx, s.sql.apply, args...)
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
	case !patient && (hasCode(err, lockTimeout) || hasCode(err, deadlock)):
		// Another transaction is just creating one of these keys, or has locked
		// the table. Nothing has changed. Each key is asked for alone.
		return todo
	}
	b.fail(todo, explainStore(ctx, err))
	return nil
}

// send runs do, and repeats it if the server reports a serialization failure. A
// statement that failed so has changed nothing. It happens where the role's
// default isolation level is not READ COMMITTED.
func (s *Store) send(ctx context.Context, do func(context.Context) error) (err error) {
	for range attempts {
		if err = s.run(ctx, do); !hasCode(err, serialization) {
			break
		}
	}
	if hasCode(err, readOnly) { // this server has become a standby
		if s.ownsPool {
			s.pool.Reset() // new connections go where target_session_attrs leads
		}
		s.listener.leave() // waiters must listen at the new primary
	}
	return err
}

// read turns the rows of a call into answers. A call is one transaction: if it
// fails halfway, it has changed nothing.
func (b *batch) read(rows pgx.Rows, todo []int, skipped *[]int) error {
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		index, err := b.take(todo, text)
		if err != nil {
			return err
		}
		if index >= 0 {
			*skipped = append(*skipped, index)
		}
		seen++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return allAnswered(seen, len(todo))
}
