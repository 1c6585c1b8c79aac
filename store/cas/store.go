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

	"github.com/croft-dev/croft/internal/chore"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by the error about a record that a register gave out and that cannot be one of the law's. Nothing is decided from
// it and nothing is written over it.
var ErrDamaged = errors.New("damaged record")

// ErrClosed is why a store that has been closed answers nothing.
var ErrClosed = errors.New("the store is closed; open it again")

// Options of a store. The zero value is good.
type Options struct {
	// Retention is how long a record outlives its last use; default [store.DefaultRetention].
	Retention time.Duration
	// Parallel is how many keys of one batch are worked on at a time; default 16.
	Parallel int
	// SweepParallel is how many records a sweep drops at a time; default 1. It is for registers that are far away: a sweep in the background has a minute.
	SweepParallel int
	// SweepEvery makes one in so many grants begin a sweep in the background; default 1024, negative: never. It is a matter of chance and not of
	// counting, so that processes which live for a single grant sweep as well.
	SweepEvery int
}

// Store is a lease store made of a register and the law. Its methods are safe for concurrent use.
//
// It is a [store.Watcher], a [store.Announcer] and a [store.Examiner] if its
// register is one. Otherwise these methods return an error that matches
// errors.ErrUnsupported.
type Store struct {
	reg       Register
	retention time.Duration
	parallel  int
	sweeping  chore.Chore
	sweepers  int // how many records one sweep drops at once

	closing sync.Once
	closed  atomic.Bool
	failed  error // of the register's Close
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
)

// New makes a store of a register, which from then on is the store's to close. o may be nil.
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
	s.sweepers = max(o.SweepParallel, 1)
	s.sweeping.Every = o.SweepEvery
	s.sweeping.Do = func(ctx context.Context) { _, _ = s.Sweep(ctx) }
	return s
}

// result is the answer to the request at an index of its batch.
type result struct {
	index  int
	answer store.Answer
}

// Apply carries out requests: those on one key in their order, different keys side by side. A request that ctx's end overtakes may still take
// effect after Apply has returned; its answer is unknown, and the law makes sending it again safe.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := make([]store.Answer, len(requests))
	var lanes [][]int // indexes of the requests of one key
	lane := make(map[string]int, len(requests))
	pending := 0
	for i, req := range requests {
		if err := req.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		pending++
		if n, ok := lane[req.Key]; ok {
			lanes[n] = append(lanes[n], i)
			continue
		}
		lane[req.Key] = len(lanes)
		lanes = append(lanes, []int{i})
	}
	if pending == 0 {
		return answers
	}
	// The workers own a copy: they may outlive this call, and the caller's slice is the caller's again when it returns.
	mine := slices.Clone(requests)
	// Room for every result: a worker that comes back from a hanging register after ctx has ended must not wait for a reader.
	results := make(chan result, pending)
	var next atomic.Int64
	for range min(s.parallel, len(lanes)) {
		go func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(lanes) {
					return
				}
				for _, i := range lanes[n] {
					results <- result{i, s.one(ctx, mine[i])}
				}
			}
		}()
	}
	return collect(ctx, answers, results, pending)
}

// Do is Apply for one request on the caller's own goroutine: it returns when the register does, whatever ctx does meanwhile. It is for those who schedule by
// themselves, as a simulation does.
func Do(ctx context.Context, s *Store, req tenure.Request) store.Answer {
	if err := req.Check(); err != nil {
		return store.Answer{Err: err}
	}
	return s.one(ctx, req)
}

// collect waits for the results that are due, and no longer than ctx lasts.
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
			err := store.Unknown(over(ctx))
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

// one carries out a request: load, decide, swap, and again when another was faster.
func (s *Store) one(ctx context.Context, req tenure.Request) store.Answer {
	doubt := false // it may have taken effect already
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
			if held, err = s.load(ctx, req.Key); err != nil {
				return store.Answer{Err: store.Unknown(err)}
			}
			if next, now, changed, err = decide(held, req); err != nil || !changed {
				if err == nil && durable(req.Verb) {
					if err := s.settle(ctx, req.Key, held.Version); err != nil {
						return store.Answer{Err: store.Unknown(err)}
					}
					s.announce(ctx, req) // the reply was lost, and perhaps this with it
				}
				if err != nil && doubt && !durable(req.Verb) { // other requests leave a trace in the record: the law knows a repetition
					return store.Answer{Err: store.Unknown(errEclipsed)}
				}
				return store.Answer{Record: next, Now: now, Err: err}
			}
		}
		if ctx.Err() != nil { // the load took its time: nobody waits for this any more
			return store.Answer{Err: store.Unknown(over(ctx))}
		}
		err := s.reg.Swap(ctx, held.Version, next, durable(req.Verb))
		switch {
		case err == nil:
			if next.Grant != held.Record.Grant {
				s.sweeping.Granted()
			}
			s.announce(ctx, req)
			return store.Answer{Record: own(next), Now: now}
		case !errors.Is(err, ErrConflict):
			// It may have taken effect, now or later. Reading again could only prove that it did, never that it will not; asking again
			// with the same secret does both.
			return store.Answer{Err: store.Unknown(err)}
		}
		doubt = doubt || errors.Is(err, ErrEclipsed)
	}
}

// errEclipsed is why a renewal or a report is not refused that may have been made before others followed.
var errEclipsed = errors.New("cas: the reply was lost, and others have changed the record since; ask again")

// announce tells the holder of a key that an operator has acted on it.
func (s *Store) announce(ctx context.Context, req tenure.Request) {
	if r, can := s.reg.(Announcer); can && req.Verb.ByHand() {
		r.Announce(ctx, req.Key)
	}
}

// settle makes sure of a version that a request found itself done in.
func (s *Store) settle(ctx context.Context, key string, v Version) error {
	if r, ok := s.reg.(Settler); ok {
		return r.Settle(ctx, key, v)
	}
	return nil
}

// decide applies the law to what is held: at the earliest and at the latest time that it may be.
func decide(held Entry, req tenure.Request) (next tenure.Record, now time.Time, changed bool, err error) {
	now = tenure.Time(held.Now)
	next, changed, err = tenure.Apply(held.Record, req, now)
	if latest := tenure.Time(held.Latest); err == nil && latest.After(now) {
		now = latest // also of what stays as it is: a holder counts on what is left of its term, and that must not be too long
		if changed {
			next, changed, err = tenure.Apply(held.Record, req, now)
		}
	}
	return next, now, changed, err
}

// recalled decides on what the register remembers of its own last change. Nothing but a change is decided by that: the swap will tell whether it was
// still true.
func (s *Store) recalled(req tenure.Request) (held Entry, next tenure.Record, now time.Time, changed bool) {
	r, ok := s.reg.(Recaller)
	if !ok {
		return
	}
	if held, ok = r.Recall(req.Key); !ok || check(held.Record) != nil || !held.Record.IsZero() && held.Record.Key != req.Key {
		return
	}
	held.Record = own(held.Record)
	var err error
	if next, now, changed, err = decide(held, req); err != nil {
		changed = false
	}
	return held, next, now, changed
}

// durable reports whether a request's effect must survive a crash of the register.
func durable(v tenure.Verb) bool { return v != tenure.Renew && v != tenure.Report }

// load reads a record that the law can be applied to, and that nobody else refers to.
func (s *Store) load(ctx context.Context, key string) (Entry, error) {
	held, err := s.reg.Load(ctx, key)
	if err != nil {
		return Entry{}, err
	}
	if err := check(held.Record); err != nil {
		return Entry{}, err
	}
	if !held.Record.IsZero() && held.Record.Key != key {
		return Entry{}, fmt.Errorf("%w: it was kept for %q and says it is of %q; remove it from the register if the key may be forgotten", ErrDamaged, key, held.Record.Key)
	}
	held.Record = own(held.Record)
	return held, nil
}

// check names damage. Its error must not match fence.ErrInvalid as the record's own does: the caller's input was good.
func check(rec tenure.Record) error {
	if rec.IsZero() {
		return nil
	}
	if err := rec.Check(); err != nil {
		return fmt.Errorf("%w: key %q: %s; remove it from the register if the key may be forgotten", ErrDamaged, rec.Key, err.Error())
	}
	return nil
}

// own copies what a record refers to, so that the register, the law and the caller can each change their own.
func own(rec tenure.Record) tenure.Record {
	rec.History = slices.Clone(rec.History)
	rec.Guards = slices.Clone(rec.Guards)
	return rec
}

// pause is the time before a try: none before the first two, because whoever was overtaken once mostly finds the key taken and is done, then
// short and random, so that contenders do not meet again and again.
func pause(ctx context.Context, try int) error {
	if ctx.Err() != nil {
		return over(ctx)
	}
	if try < 2 {
		return nil
	}
	most := min(time.Millisecond<<min(try-2, 6), 50*time.Millisecond)
	t := time.NewTimer(rand.N(most))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return over(ctx)
	}
}

// over is why ctx has ended: its error, and its cause if that says more.
func over(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
