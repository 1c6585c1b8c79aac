package etcd

import (
	"errors"
	"slices"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// The transfers that a record remembers are most of it, and all but the newest never change. So they are moved, a few at a time, to a key of their own, the shelf, and most writes of a record carry only the newest. Record
// and shelf are written in one step; the record says up to which token its transfers are on the shelf.

// mostAtHand is how many transfers a record has before all but the newest go to the shelf.
const maxInRecord = 8

const shelfFormat = 1

var errShelf = errors.New("its older transfers are not those that it is said to have")

// shelve moves transfers to the shelf when there are too many at hand. It returns what to write there, or nothing.
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

// history are all transfers that a record remembers.
func (d *storedRecord) history() []tenure.Term { return joinHistory(d.older, d.rec.History) }

// joined puts older transfers before others, as many as a record may have.
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

// put gives a deed what was read from its shelf.
func (d *storedRecord) attachOlder(older []tenure.Term) error {
	if len(older) == 0 || len(older) > tenure.HistoryLen || older[len(older)-1].Token != d.shelved || d.shelved >= d.rec.History[0].Token {
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

// decodeShelf unpacks the shelf of a deed.
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

// complete reports whether all transfers are known.
func (d *storedRecord) complete() bool { return d.shelved == 0 || d.older != nil }

// isOlder reports whether a grant is one of those on the shelf.
func (d *storedRecord) isShelved(g fence.Grant) bool {
	for i := range d.older {
		if d.older[i].Grant == g {
			return true
		}
	}
	return false
}

// forLaw gives a record all its transfers if one of the requests is about an older one. Otherwise those at hand are enough to decide.
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
