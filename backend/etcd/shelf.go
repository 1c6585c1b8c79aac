package etcd

import (
	"errors"
	"slices"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// The history is most of a record, and all but its newest term never changes.
// So older terms are moved, several at a time, to an etcd key of their own: the
// shelf. Most writes of a record carry only the newest terms. One transaction
// writes record and shelf. The record says up to which token its history is on
// the shelf.

// maxInRecord is how many terms a record has before all but the newest move to
// the shelf.
const maxInRecord = 8

const shelfFormat = 1

var errShelf = errors.New("its older transfers are not those that it is said to have")

// shelve moves terms to the shelf if the record has too many. It returns the
// shelf's new value, or "" if it does not change.
func (d *storedRecord) shelve() string {
	n := len(d.rec.History)
	if n <= maxInRecord {
		return ""
	}
	whole := d.history()
	older := whole[: len(whole)-1 : len(whole)-1]
	d.shelved, d.older = older[len(older)-1].Token, older
	d.rec.History = slices.Clone(d.rec.History[n-1:])
	w := &writer{out: []byte{shelfFormat}}
	w.terms(older)
	return string(w.out)
}

// history returns all known terms.
func (d *storedRecord) history() []tenure.Term { return joinHistory(d.older, d.rec.History) }

// joinHistory puts older terms before newer ones, and drops the oldest if there
// are more than a record may have.
func joinHistory(older, newer []tenure.Term) []tenure.Term {
	if len(newer) > 0 {
		first := newer[0].Token
		if n := slices.IndexFunc(older, func(t tenure.Term) bool { return t.Token >= first }); n >= 0 {
			older = older[:n]
		}
	}
	older = older[max(0, len(older)-max(0, tenure.HistoryLen-len(newer))):]
	return slices.Concat(older, newer)
}

// attachOlder gives a record the terms that were read from its shelf. It
// returns an error if they do not fit.
func (d *storedRecord) attachOlder(older []tenure.Term) error {
	if len(older) == 0 || len(older) > tenure.HistoryLen || older[len(older)-1].Token != d.shelved ||
		d.shelved >= d.rec.History[0].Token {
		return errShelf
	}
	whole := d.rec
	whole.History = joinHistory(older, d.rec.History)
	if err := whole.Check(); err != nil {
		return err
	}
	d.older = older
	return nil
}

// decodeShelf unpacks the shelf of a record.
func (d *storedRecord) decodeShelf(value []byte) error {
	r := &reader{rest: value}
	if r.take(1)[0] != shelfFormat {
		r.fail()
	}
	older := r.terms()
	if r.err == nil && len(r.rest) > 0 {
		r.err = errFormat
	}
	if r.err == nil {
		r.err = d.attachOlder(older)
	}
	if r.err != nil {
		return damaged(d.rec.Key, r.err)
	}
	return nil
}

// complete reports whether all terms are known.
func (d *storedRecord) complete() bool { return d.shelved == 0 || d.older != nil }

// isShelved reports whether a grant is on the shelf.
func (d *storedRecord) isShelved(g fence.Grant) bool {
	for i := range d.older {
		if d.older[i].Grant == g {
			return true
		}
	}
	return false
}

// withShelfFor gives a record its whole history if a request is about a grant
// on the shelf. Otherwise the terms in the record are enough to decide.
func (d *storedRecord) withShelfFor(rec tenure.Record, requests []tenure.Request) tenure.Record {
	if d.older == nil {
		return rec
	}
	for _, req := range requests {
		if g := req.Secret.Grant(); g != rec.Grant && d.isShelved(g) {
			rec.History = joinHistory(d.older, rec.History)
			return rec
		}
	}
	return rec
}
