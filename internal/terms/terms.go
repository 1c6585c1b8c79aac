// Package terms derives the newest term of a record from its fields. A store
// that keeps the fields need not keep that term as well.
package terms

import "github.com/croft-dev/croft/tenure"

// Newest returns the newest term of a record. If Ended is set, the holder has
// given the lease back, and the deadline is the time when it did. All other
// ends come with the next term.
func Newest(rec *tenure.Record) tenure.Term {
	t := tenure.Term{
		Token: rec.Token, Grant: rec.Grant, Owner: rec.Owner, Instance: rec.Instance, State: rec.State,
		Cause: rec.Cause, Actor: rec.Actor, Note: rec.Note, Acquired: rec.Acquired, Ended: rec.Ended,
	}
	if rec.Ended != "" { // only a held lease can be given back
		t.State, t.Finished = tenure.Held, rec.Deadline
	}
	return t
}

// Past returns all terms of a record but the newest. It is nil if there are no
// others.
func Past(rec tenure.Record) []tenure.Term {
	if len(rec.History) < 2 {
		return nil
	}
	return rec.History[:len(rec.History)-1]
}

// Join returns rec with its history: the past terms, then the newest. A zero
// record has none.
func Join(rec tenure.Record, past []tenure.Term) tenure.Record {
	if rec.IsZero() {
		return rec
	}
	rec.History = append(append(make([]tenure.Term, 0, len(past)+1), past...), Newest(&rec))
	return rec
}
