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
	answers, good := checked(requests) // never another slice: the closure below has it
	if good == 0 {
		return answers
	}
	if err := s.usable(ctx); err != nil {
		return fail(answers, err)
	}
	// The requests are copied, and the answers left to whoever does it if ctx ends: that may outlive this call, and what is the caller's is the caller's again when it returns.
	mine, file := append([]tenure.Request(nil), requests...), ""
	err := s.do(ctx, len(mine), func(x *transaction) {
		file = x.base.file
		for i := range mine {
			if answers[i].Err == nil {
				answers[i] = x.apply(&mine[i])
			}
		}
	})
	if err != nil {
		unknown, _ := checked(requests)
		return fail(unknown, err)
	}
	s.awaited(file, mine, answers)
	for i := range answers {
		if answers[i].Err == nil && (mine[i].Verb == tenure.Acquire || mine[i].Verb.ByHand()) {
			s.sweeps.Granted()
		}
	}
	return answers
}

// checked are answers to bad input, and how many requests are none.
func checked(requests []tenure.Request) (answers []store.Answer, good int) {
	answers = make([]store.Answer, len(requests))
	for i := range requests {
		if answers[i].Err = requests[i].Check(); answers[i].Err == nil {
			good++
		}
	}
	return answers, good
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
	seen   map[string]*entry // what is known of keys: kept for the next transaction, which trusts it if nobody else has written
	at     int64             // the version of the data that it is of
	dirty  []*entry
	passed []*entry // keys that have changed hands
	acts   []string // keys that operators have acted on
	again  *entry   // one that was confirmed as it is
	wrote  bool     // a record: whether anything else was is not known
	err    error    // the first failure: nothing of it counts
}

// entry is a key's record as a transaction has read or changed it.
type entry struct {
	id int64 // 0: it has no row
	kept
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
	before := handsOf(&e.head)
	changed, refused, err := e.decide(req, x.now)
	switch {
	case err != nil:
		return store.Answer{Err: store.Unknown(err)}
	case refused != nil:
		return store.Answer{Record: withoutHistory(e.head), Now: x.now, Err: refused}
	case changed:
		if !e.dirty {
			e.dirty = true
			x.dirty = append(x.dirty, e)
		}
		e.passing = e.passing || handsOf(&e.head) != before
		if req.Verb.ByHand() {
			x.acts = append(x.acts, req.Key)
		}
	case e.id != 0:
		x.again = e
	}
	return store.Answer{Record: withoutHistory(e.head), Now: x.now}
}

// decide applies the law. The law looks into the history for the request's own grant, at the newest transfer, and puts the next behind it: so a request whose grant is not among the older transfers
// is decided by the newest alone, and most of a record is never unpacked. Any other is decided by the whole record.
func (k *kept) decide(req *tenure.Request, now time.Time) (changed bool, refused, err error) {
	raw, err := rawGrant(req.Secret.Grant())
	if err != nil {
		return false, nil, err
	}
	if k.past.has(raw) {
		rec, err := k.record()
		if err != nil {
			return false, nil, err
		}
		next, changed, refused := tenure.Apply(rec, *req, now)
		if refused == nil && changed {
			err = k.replace(next)
		}
		return changed, refused, err
	}
	next, changed, refused := tenure.Apply(k.head, *req, now)
	switch e := refused.(type) { //nolint:errorlint // the law's own, not wrapped
	case *tenure.HeldError:
		e.Record = withoutHistory(e.Record) // one transfer is no history
	case *tenure.NotOwnedError:
		e.Record = withoutHistory(e.Record)
	}
	if refused != nil || !changed {
		return false, refused, nil
	}
	if older := len(next.History) - 1; older > 0 {
		if err := k.past.add(&next.History[0]); err != nil {
			return false, nil, err
		}
		next.History = next.History[older:]
	}
	k.head = next
	return true, nil, nil
}

// withoutHistory is a record that a caller may do with what it likes.
func withoutHistory(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = nil, slices.Clone(rec.Guards)
	return rec
}

// entry is a key's record, read once for as long as nobody else writes.
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
		e.kept, e.damage = unpack(key, packed)
	}
	return e
}

// flush writes what has changed: a record once, however often it has.
func (x *transaction) flush() error {
	for _, e := range x.dirty {
		x.wrote = true
		packed, err := e.pack(x.packed[:0])
		if err != nil {
			return err
		}
		x.packed = packed
		quiet := e.head.Quiet().UnixMicro()
		if e.id == 0 {
			err = x.exec(x.insert, e.head.Key, quiet, packed)
		} else {
			err = x.exec(x.update, e.id, quiet, packed)
		}
		if err != nil {
			return err
		}
		if e.passing {
			x.passed = append(x.passed, e)
		}
		if e.dirty, e.passing = false, false; e.id == 0 {
			delete(x.seen, e.head.Key) // the next one finds out where it is
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
