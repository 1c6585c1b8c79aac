package cas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/sweep"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by the error about a record that breaks the law's own
// rules. The store decides nothing from such a record, and never overwrites it.
// A register wraps it in the error about a record that it cannot decode.
var ErrDamaged = store.ErrDamaged

// ErrClosed is the reason in every error of a store that has been closed.
var ErrClosed = errors.New("the store is closed; open it again")

// Options of a store. The zero value is good.
type Options struct {
	// Retention is how long the store keeps a record after its last use. The
	// default is [store.DefaultRetention].
	Retention time.Duration
	// Parallel is how many keys of one batch are worked on at a time. The
	// default is 16.
	Parallel int
	// SweepParallel is how many records a sweep drops at a time. The default is
	// 1. Distant registers need more, because a background sweep has only a
	// minute.
	SweepParallel int
	// SweepEvery is the average number of grants for one background sweep. The
	// default is 1024. A negative number means no background sweeps. Chance
	// decides, not a count, so that processes which live for a single grant
	// sweep as well.
	SweepEvery int
}

// Store is a lease store made of a register and the law. Its methods are safe
// for concurrent use.
//
// It is a [store.Watcher], a [store.Announcer] and a [store.Examiner] if its
// register is one. Otherwise these methods return an error that matches
// errors.ErrUnsupported.
type Store struct {
	reg       Register
	retention time.Duration
	parallel  int
	sweeper   sweep.Runner
	drops     int // how many records one sweep drops at once

	closing sync.Once
	closed  atomic.Bool
	failed  error // the error of the register's Close
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
)

// New makes a store of a register. From then on the store closes the register.
// o may be nil.
func New(reg Register, o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{reg: reg, retention: o.Retention, parallel: o.Parallel}
	if s.retention <= 0 {
		s.retention = store.DefaultRetention
	}
	if s.parallel <= 0 {
		s.parallel = 16
	}
	s.drops = max(o.SweepParallel, 1)
	s.sweeper.Every = o.SweepEvery
	s.sweeper.Do = func(ctx context.Context) { _, _ = s.Sweep(ctx) }
	return s
}

// result is the answer to the request at one index of a batch.
type result struct {
	index  int
	answer store.Answer
}

// Apply carries out requests: those on one key in their order, different keys
// in parallel. A request that is still running when ctx ends may take effect
// after Apply has returned. Its answer is unknown, and the law makes it safe to
// send it again.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := make([]store.Answer, len(requests))
	var queues [][]int // indexes of the requests of one key
	queueOf := make(map[string]int, len(requests))
	pending := 0
	for i, req := range requests {
		if err := req.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		pending++
		if n, ok := queueOf[req.Key]; ok {
			queues[n] = append(queues[n], i)
			continue
		}
		queueOf[req.Key] = len(queues)
		queues = append(queues, []int{i})
	}
	if pending == 0 {
		return answers
	}
	// The workers get a copy. They may outlive this call, and then the caller
	// may change its slice.
	mine := slices.Clone(requests)
	// There is room for every result. A worker that a hanging register held up
	// must not wait for a reader.
	results := make(chan result, pending)
	var next atomic.Int64
	for range min(s.parallel, len(queues)) {
		go func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(queues) {
					return
				}
				for _, i := range queues[n] {
					results <- result{i, s.carryOut(ctx, mine[i])}
				}
			}
		}()
	}
	return collect(ctx, answers, results, pending)
}

// Do is Apply for one request, on the caller's own goroutine. It returns when
// the register does, even if ctx ends earlier. It is for callers that schedule
// by themselves, such as a simulation.
func Do(ctx context.Context, s *Store, req tenure.Request) store.Answer {
	if err := req.Check(); err != nil {
		return store.Answer{Err: err}
	}
	return s.carryOut(ctx, req)
}

// collect waits for the due results, but no longer than ctx lasts.
func collect(ctx context.Context, answers []store.Answer, results <-chan result, due int) []store.Answer {
	answered := make([]bool, len(answers))
	ended := ctx.Done()
	for due > 0 {
		select {
		case r := <-results:
			answers[r.index], answered[r.index] = r.answer, true
			due--
			continue
		default:
		}
		select {
		case r := <-results:
			answers[r.index], answered[r.index] = r.answer, true
			due--
		case <-ended:
			err := store.Unknown(wait.Ended(ctx))
			for i := range answers {
				if !answered[i] && answers[i].Err == nil {
					answers[i].Err = err
				}
			}
			return answers
		}
	}
	return answers
}

// carryOut carries out a request: load, decide, swap. It begins again if
// another request was faster.
func (s *Store) carryOut(ctx context.Context, req tenure.Request) store.Answer {
	doubt := false // an earlier try may have taken effect
	for try := 0; ; try++ {
		if err := pause(ctx, try); err != nil {
			return store.Answer{Err: store.Unknown(err)}
		}
		if s.closed.Load() {
			return store.Answer{Err: store.Unknown(ErrClosed)}
		}
		var held Entry
		var next tenure.Record
		var now time.Time
		changed := false
		if try == 0 {
			held, next, now, changed = s.recalled(req)
		}
		if !changed {
			var err error
			if held, err = s.load(ctx, req.Key); err == nil && held.Now.IsZero() {
				held.Now, err = s.reg.Now(ctx)
			}
			if err != nil {
				return store.Answer{Err: failure(err, try)}
			}
			if next, now, changed, err = decide(held, req); err != nil || !changed {
				if err == nil && durable(req.Verb) {
					if err := s.settle(ctx, req.Key, held.Version); err != nil {
						return store.Answer{Err: store.Unknown(err)}
					}
					s.announce(ctx, req) // the first try may have died before this
				}
				// The other verbs leave a trace in the record, so the law
				// recognises a repetition.
				if err != nil && doubt && !traced(req.Verb) {
					return store.Answer{Err: store.Unknown(errEclipsed)}
				}
				return store.Answer{Record: next, Now: now, Err: err}
			}
		}
		// The load took long, and nobody waits any more. The suite storetest
		// lets a client stand still here.
		if ctx.Err() != nil {
			return store.Answer{Err: store.Unknown(wait.Ended(ctx))}
		}
		err := s.reg.Swap(ctx, held.Version, next, durable(req.Verb))
		switch {
		case err == nil:
			if next.Grant != held.Record.Grant {
				s.sweeper.Granted()
			}
			s.announce(ctx, req)
			return store.Answer{Record: copyRecord(next), Now: now}
		case !errors.Is(err, ErrConflict):
			// It may have taken effect, now or later. Reading again can only
			// prove that it did, never that it will not. Asking again with the
			// same secret settles both.
			return store.Answer{Err: failure(err, try)}
		}
		doubt = doubt || errors.Is(err, ErrEclipsed)
	}
}

// failure is the error of a request whose try has failed. A register's fault
// stands only if there was no try before: a register may report a conflict
// although its change counted for a moment.
func failure(err error, try int) error {
	if try > 0 && store.IsFault(err) {
		return &store.UnknownError{Err: err}
	}
	return store.Unknown(err)
}

// errEclipsed is the reason of an unknown renewal, report or checkpoint. It may
// have taken effect before another request changed the record.
var errEclipsed = errors.New("cas: the reply was lost, and others have changed the record since; ask again")

// announce tells the holder of a key that an operator has acted on it.
func (s *Store) announce(ctx context.Context, req tenure.Request) {
	if r, can := s.reg.(Announcer); can && req.Verb.ByHand() {
		r.Announce(ctx, req.Key)
	}
}

// settle makes a version safe in which a request found itself already done.
func (s *Store) settle(ctx context.Context, key string, v Version) error {
	if r, ok := s.reg.(Settler); ok {
		return r.Settle(ctx, key, v)
	}
	return nil
}

// decide applies the law to an entry. If the clock is coarse, it does so at the
// earliest and at the latest possible time.
func decide(held Entry, req tenure.Request) (next tenure.Record, now time.Time, changed bool, err error) {
	now = tenure.Time(held.Now)
	next, changed, err = tenure.Apply(held.Record, req, now)
	if latest := tenure.Time(held.Latest); err == nil && latest.After(now) {
		// Also if nothing changes: the holder computes from now how long its
		// term still lasts, and must not take it for longer than it is.
		now = latest
		if changed {
			next, changed, err = tenure.Apply(held.Record, req, now)
		}
	}
	return next, now, changed, err
}

// recalled decides on the entry that the register remembers from its own last
// change. It reports only changes, because the swap confirms those.
func (s *Store) recalled(req tenure.Request) (held Entry, next tenure.Record, now time.Time, changed bool) {
	r, ok := s.reg.(Recaller)
	if !ok {
		return
	}
	if held, ok = r.Recall(req.Key); !ok || check(held.Record) != nil ||
		!held.Record.IsZero() && held.Record.Key != req.Key {
		return
	}
	held.Record = copyRecord(held.Record)
	var err error
	if next, now, changed, err = decide(held, req); err != nil {
		changed = false
	}
	return held, next, now, changed
}

// durable reports whether the effect of a request must survive a crash of the
// register.
func durable(v tenure.Verb) bool { return v != tenure.Renew && v != tenure.Report }

// traced reports whether the record tells later that a request took effect.
func traced(v tenure.Verb) bool { return durable(v) && v != tenure.Checkpoint }

// load reads a record and checks it. Nobody else refers to the values in it.
func (s *Store) load(ctx context.Context, key string) (Entry, error) {
	held, err := s.reg.Load(ctx, key)
	if errors.Is(err, ErrDamaged) {
		err = store.Fault(err)
	}
	if err != nil {
		return Entry{}, err
	}
	if err := check(held.Record); err != nil {
		return Entry{}, store.Fault(err)
	}
	if !held.Record.IsZero() && held.Record.Key != key {
		return Entry{}, store.Fault(fmt.Errorf("%w: it was kept for %q and says it is of %q;"+
			" remove it from the register if the key may be forgotten", ErrDamaged, key, held.Record.Key))
	}
	held.Record = copyRecord(held.Record)
	return held, nil
}

// check returns an error if the record is damaged. The error must not match
// fence.ErrInvalid, as that of Record.Check does: the caller's input was good.
func check(rec tenure.Record) error {
	if rec.IsZero() {
		return nil
	}
	if err := rec.Check(); err != nil {
		return fmt.Errorf("%w: key %q: %s; remove it from the register if the key may be forgotten",
			ErrDamaged, rec.Key, err.Error())
	}
	return nil
}

// copyRecord copies the slices of a record, so that the register, the law and
// the caller can each change their own.
func copyRecord(rec tenure.Record) tenure.Record {
	rec.History = slices.Clone(rec.History)
	rec.Guards = slices.Clone(rec.Guards)
	return rec
}

// pause waits before a try. The first two tries do not wait: a request that
// lost once mostly finds the key taken, and is done. Later waits are short and
// random, so that contenders do not collide again and again.
func pause(ctx context.Context, try int) error {
	if ctx.Err() != nil {
		return wait.Ended(ctx)
	}
	if try < 2 {
		return nil
	}
	most := min(time.Millisecond<<min(try-2, 6), 50*time.Millisecond)
	return clock.Sleep(ctx, rand.N(most))
}
