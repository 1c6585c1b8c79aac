package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"slices"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Apply carries out requests in one transaction, together with those of other
// callers. If ctx ends first, the answers match [store.ErrUnknown], and the
// requests may still take effect after Apply has returned. It is safe to send
// them again: the law recognises copies.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers, good := checked(requests) // the closure below keeps this slice
	if good == 0 {
		return answers
	}
	if err := s.usable(ctx); err != nil {
		return fail(answers, err)
	}
	// The task may outlive this call, and the caller may then change its
	// slices. So the task gets a copy of the requests. If the task fails or is
	// late, it keeps answers, and the caller gets a new slice.
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
			s.sweeper.Granted()
		}
	}
	return answers
}

// checked makes one answer for each request. Answers to bad input have an
// error. good is the number of the others.
func checked(requests []tenure.Request) (answers []store.Answer, good int) {
	answers = make([]store.Answer, len(requests))
	for i := range requests {
		if answers[i].Err = requests[i].Check(); answers[i].Err == nil {
			good++
		}
	}
	return answers, good
}

// fail puts err into all answers that have no error yet.
func fail(answers []store.Answer, err error) []store.Answer {
	err = store.Unknown(err)
	for i := range answers {
		if answers[i].Err == nil {
			answers[i].Err = err
		}
	}
	return answers
}

// transaction is a transaction under way. It has the write lock, and its time
// was read after it got the lock.
type transaction struct {
	*writer
	raw    sqldriver.ExecerContext
	now    time.Time
	seen   map[string]*entry // records by key; the next transaction may trust them, see begin
	at     int64             // the data version that seen belongs to
	dirty  []*entry          // records to be written
	passed []*entry          // written records whose keys have changed hands
	acts   []string          // keys that operators have acted on
	again  *entry            // a record that was confirmed unchanged, see end
	wrote  bool              // flush has written a record
	err    error             // the first failure: the transaction is rolled back
}

// entry is a key's record as a transaction has read or changed it.
type entry struct {
	id int64 // 0: it has no row
	kept
	damage  error
	dirty   bool
	passing bool // the key has changed hands
}

// apply decides one request by the law. It changes the record in memory only;
// flush writes it.
func (x *transaction) apply(req *tenure.Request) store.Answer {
	e := x.entry(req.Key)
	if x.err != nil {
		return store.Answer{Err: x.err}
	}
	if e.damage != nil {
		return store.Answer{Err: store.Fault(e.damage)}
	}
	before := ownershipOf(&e.head)
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
		e.passing = e.passing || ownershipOf(&e.head) != before
		if req.Verb.ByHand() {
			x.acts = append(x.acts, req.Key)
		}
	case e.id != 0:
		x.again = e
	}
	return store.Answer{Record: withoutHistory(e.head), Now: x.now}
}

// decide applies the law to a request. It returns the law's refusal in refused,
// and an error if the record cannot be unpacked or packed.
//
// The law uses the history for three things: it looks for the request's own
// grant, reads the newest transfer, and appends the next one. So a request
// whose grant is not among the older transfers needs the newest transfer only,
// and the older ones stay packed. All other requests need the whole record.
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

// withoutHistory returns a copy of the record that shares nothing with it, for
// callers to keep or change.
func withoutHistory(rec tenure.Record) tenure.Record {
	rec.History, rec.Guards = nil, slices.Clone(rec.Guards)
	return rec
}

// entry returns a key's record from memory, or reads it. On a failure it sets
// x.err and returns an empty entry.
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

// flush writes the changed records, each once.
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
			delete(x.seen, e.head.Key) // its new id is not known; read it again
		}
	}
	x.dirty = x.dirty[:0]
	return nil
}

// run executes a statement that may change any record. It writes the changed
// records first, and afterwards forgets all records in memory. It returns the
// number of rows changed. On a failure it sets x.err.
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

// ownership identifies the present ownership of a key. Waiters are woken when
// it changes. Renewals and progress reports do not change it.
type ownership struct {
	token int64
	state tenure.State
	ended tenure.End
}

func ownershipOf(rec *tenure.Record) ownership {
	return ownership{int64(rec.Token), rec.State, rec.Ended}
}
