package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Apply carries out requests, together with what others ask for at the same time, in one transaction. A request that ctx's end overtakes may still take effect after Apply has
// returned; its answer is unknown, and the law makes sending it again safe.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := make([]store.Answer, len(requests))
	good := 0
	for i := range requests {
		if answers[i].Err = requests[i].Check(); answers[i].Err == nil {
			good++
		}
	}
	if good == 0 {
		return answers
	}
	if err := s.usable(ctx); err != nil {
		return fail(answers, err)
	}
	// The writer owns a copy: it may outlive this call, and the caller's slice is the caller's again when it returns.
	mine, theirs := append([]tenure.Request(nil), requests...), append([]store.Answer(nil), answers...)
	err := s.do(ctx, len(mine), func(x *transaction) {
		for i := range mine {
			if theirs[i].Err == nil {
				theirs[i] = x.apply(&mine[i])
			}
		}
	})
	if err != nil {
		return fail(answers, err)
	}
	for i := range theirs {
		if theirs[i].Err == nil && (mine[i].Verb == tenure.Acquire || mine[i].Verb.ByHand()) {
			s.sweepByChance()
		}
	}
	return theirs
}

// fail answers everything that is not bad input.
func fail(answers []store.Answer, err error) []store.Answer {
	err = store.Unknown(err)
	for i := range answers {
		if answers[i].Err == nil {
			answers[i].Err = err
		}
	}
	return answers
}

// transaction is one under way: it has the write lock, and a time that was read after it.
type transaction struct {
	*writer
	raw    sqldriver.ExecerContext
	now    time.Time
	seen   map[string]*entry
	dirty  []*entry
	passed []*entry // keys that have changed hands
	wrote  bool
	err    error // the first failure: nothing of it counts
}

// entry is a key's record within a transaction.
type entry struct {
	id      int64 // 0: it has no row
	record  tenure.Record
	damage  error
	dirty   bool
	passing bool // the key has changed hands
}

// apply carries out a request on what the transaction has read, by the law.
func (x *transaction) apply(req *tenure.Request) store.Answer {
	e := x.entry(req.Key)
	if x.err != nil {
		return store.Answer{Err: x.err}
	}
	if e.damage != nil {
		return store.Answer{Err: store.Unknown(e.damage)}
	}
	next, changed, err := tenure.Apply(e.record, *req, x.now)
	if err != nil {
		return store.Answer{Record: withoutHistory(next), Now: x.now, Err: refusal(err)}
	}
	if !changed {
		return store.Answer{Record: withoutHistory(next), Now: x.now}
	}
	if !e.dirty {
		e.dirty = true
		x.dirty = append(x.dirty, e)
	}
	e.passing = e.passing || handsOf(&next) != handsOf(&e.record)
	e.record = next
	return store.Answer{Record: withoutHistory(next), Now: x.now}
}

// withoutHistory is a record that a caller may do with what it likes: the writer remembers what it has decided by.
func withoutHistory(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = nil, slices.Clone(rec.Guards)
	return rec
}

// refusal does the same to the record in a refusal. One that says why a grant is not owned tells of the transfers after it.
func refusal(err error) error {
	switch e := err.(type) { //nolint:errorlint // the law's own, not wrapped
	case *tenure.HeldError:
		e.Record = withoutHistory(e.Record)
	case *tenure.NotOwnedError:
		e.Record.History, e.Record.Guards = slices.Clone(e.Record.History), slices.Clone(e.Record.Guards)
	}
	return err
}

// entry is a key's record, read once in a transaction.
func (x *transaction) entry(key string) *entry {
	if e := x.seen[key]; e != nil {
		return e
	}
	e := &entry{}
	x.seen[key] = e
	if x.err != nil {
		return e
	}
	id, packed, err := x.find(key)
	if err != nil {
		x.err = err
		return e
	}
	if e.id = id; packed != nil {
		e.record, e.damage = x.recall(key, packed)
	}
	return e
}

// flush writes what has changed: a record once, however often it has.
func (x *transaction) flush() error {
	for _, e := range x.dirty {
		x.wrote = true
		x.packer.to = x.packer.to[:0]
		packed, err := x.packer.pack(&e.record)
		if err != nil {
			return err
		}
		quiet := e.record.Quiet().UnixMicro()
		if e.id == 0 {
			err = x.exec(x.insert, e.record.Key, quiet, packed)
		} else {
			err = x.exec(x.update, e.id, quiet, packed)
		}
		if err != nil {
			return err
		}
		x.remember(&e.record, packed)
		if e.passing {
			x.passed = append(x.passed, e)
		}
	}
	x.dirty = x.dirty[:0]
	return nil
}

// run does something to the tables as they are: what was changed is written first, and nothing that was read before is relied on after it.
func (x *transaction) run(text string, args ...int64) (affected int64) {
	if x.err == nil {
		x.err = x.flush()
	}
	if x.err != nil {
		return 0
	}
	clear(x.seen)
	values := make([]sqldriver.NamedValue, len(args))
	for i, a := range args {
		values[i] = sqldriver.NamedValue{Ordinal: i + 1, Value: a}
	}
	var result sqldriver.Result
	if result, x.err = x.raw.ExecContext(context.Background(), text, values); x.err != nil {
		return 0
	}
	x.wrote = true
	affected, x.err = result.RowsAffected()
	return affected
}

// hands is who has a key: what waiters wait to see changed. Renewals and reports leave it as it is.
type hands struct {
	token int64
	state tenure.State
	ended tenure.End
}

func handsOf(rec *tenure.Record) hands { return hands{int64(rec.Token), rec.State, rec.Ended} }
