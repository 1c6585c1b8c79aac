package etcd

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// storedRecord is the value of a key's record in etcd: the record, and the etcd
// lease and clock that its deadline depends on.
type storedRecord struct {
	rec tenure.Record
	// clock is the clock that all times are on. written is its time when this
	// was written.
	clock   identity
	written time.Time
	// lease is the etcd lease that carries a held or reserved key. Its renewals
	// are noted in slot of page.
	lease clientv3.LeaseID
	page  pageID
	slot  int
	// offeredTo is the store that is offered the key: a hint.
	offeredTo identity
	// shelved is the newest token on the key's shelf, 0 if it has none. rec has
	// the history after it. older is the history on the shelf, nil if that has
	// not been read.
	shelved fence.Token
	older   []tenure.Term
}

// unnamed is the offeredTo of a freed key whose queue the releasing store did
// not know.
const unnamed identity = 1

// page says when the leases on it were renewed last, by one clock. Only the
// store that the page belongs to writes it.
type page struct {
	clock   identity
	written time.Time
	lease   clientv3.LeaseID
	renewed map[int]time.Time // by slot
	// over has the leases that have lapsed although the clock of their records
	// need not show it: an award is written by another store.
	over map[int]bool
}

const (
	recordFormat = 4
	pageFormat   = 1
)

var errFormat = errors.New("it was not written by this version of the program")

// writer packs values. Numbers are varints. Times are microseconds from a base.
// A text is written once and then referred to by number.
type writer struct {
	out   []byte
	base  int64
	texts []string
}

// writers are reused, because every change of a record packs it.
var writers = sync.Pool{New: func() any { return &writer{} }}

func (w *writer) number(n int64)       { w.out = binary.AppendVarint(w.out, n) }
func (w *writer) unsigned(n uint64)    { w.out = binary.AppendUvarint(w.out, n) }
func (w *writer) id(i identity)        { w.out = binary.BigEndian.AppendUint64(w.out, uint64(i)) }
func (w *writer) span(d time.Duration) { w.number(d.Microseconds()) }

func (w *writer) time(t time.Time) {
	if t.IsZero() {
		w.out = append(w.out, 0)
		return
	}
	w.out = append(w.out, 1)
	w.number(t.UnixMicro() - w.base)
}

func (w *writer) text(s string) {
	if s == "" {
		w.out = append(w.out, 0)
		return
	}
	for i, known := range w.texts { // they are few, and the first ones occur most
		if known == s {
			w.unsigned(uint64(i) + 2)
			return
		}
	}
	w.out = append(w.out, 1)
	w.unsigned(uint64(len(s)))
	w.out = append(w.out, s...)
	w.texts = append(w.texts, s)
}

// termTexts is how many texts a term has.
const termTexts = 7

// changed packs those texts of a term that differ from the term before it.
func (w *writer) changed(last, texts [termTexts]string) [termTexts]string {
	bits := byte(0)
	for i := range texts {
		if texts[i] != last[i] {
			bits |= 1 << i
		}
	}
	w.out = append(w.out, bits)
	for i, s := range texts {
		if s != last[i] {
			w.text(s)
		}
	}
	return texts
}

func (w *writer) grant(g fence.Grant) {
	var raw [16]byte // stays zero if g is not one of the law's grants
	if len(g) == 32 {
		_, _ = hex.Decode(raw[:], []byte(g))
	}
	w.out = append(w.out, raw[:]...)
}

// encode packs a stored record. It leaves out the key, which is in the etcd
// key's name, and the history on the shelf.
func (d *storedRecord) encode() string { return d.pack(false) }

// encodeWhole packs a stored record with all its history, so that its reader
// need not read the shelf.
func (d *storedRecord) encodeWhole() string { return d.pack(true) }

func (d *storedRecord) pack(whole bool) string {
	r := &d.rec
	w := writers.Get().(*writer)
	defer writers.Put(w)
	clear(w.texts)
	w.out, w.texts, w.base = w.out[:0], w.texts[:0], d.written.UnixMicro()
	w.out = append(w.out, recordFormat)
	w.number(w.base)
	w.id(d.clock)
	w.number(int64(d.lease))
	w.id(d.page.store)
	w.unsigned(uint64(d.page.number))
	w.unsigned(uint64(d.slot))
	w.id(d.offeredTo)

	w.number(int64(r.Token))
	w.grant(r.Grant)
	for _, s := range []string{
		r.Owner, r.Instance, string(r.State), string(r.Cause), string(r.Ended), r.Actor, r.Note, r.Progress,
	} {
		w.text(s)
	}
	for _, t := range []time.Time{
		r.Acquired, r.Renewed, r.Deadline, r.Succeeded, r.Grid, r.HoldUntil, r.ProgressAt,
	} {
		w.time(t)
	}
	w.span(r.TTL)
	w.span(r.Every)
	w.number(r.Terms)
	w.unsigned(uint64(len(r.Guards)))
	for _, g := range r.Guards {
		w.text(g)
	}
	w.number(int64(d.shelved))
	w.terms(r.History)
	if whole && d.older != nil {
		w.terms(d.older)
	}
	return string(w.out)
}

// terms packs the terms of a history. Each time is packed relative to the term
// before it, and each token relative to its time, so most are short.
func (w *writer) terms(terms []tenure.Term) {
	w.unsigned(uint64(len(terms)))
	var last [termTexts]string
	for i := range terms {
		t := &terms[i]
		last = w.changed(last, [termTexts]string{
			t.Owner, t.Instance, string(t.State), string(t.Cause), string(t.Ended), t.Actor, t.Note,
		})
		w.grant(t.Grant)
		w.time(t.Acquired)
		w.base = t.Acquired.UnixMicro()
		w.number(int64(t.Token) - w.base)
		w.time(t.Finished)
	}
}

// reader unpacks the values of a writer. After the first misfit it returns zero
// values, and err is set.
type reader struct {
	rest  []byte
	base  int64
	texts []string
	err   error
}

func (r *reader) fail() {
	r.rest = nil
	if r.err == nil {
		r.err = errFormat
	}
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.fail()
		return make([]byte, min(max(n, 0), 64))
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) number() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) unsigned() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) id() identity        { return identity(binary.BigEndian.Uint64(r.take(8))) }
func (r *reader) span() time.Duration { return time.Duration(r.number()) * time.Microsecond }

func (r *reader) time() time.Time {
	if r.take(1)[0] == 0 {
		return time.Time{}
	}
	return time.UnixMicro(r.base + r.number()).UTC()
}

func (r *reader) text() string {
	switch n := r.unsigned(); {
	case n == 0:
		return ""
	case n > uint64(len(r.texts))+1:
		r.fail()
		return ""
	case n > 1:
		return r.texts[n-2]
	}
	size := r.unsigned()
	if size > uint64(len(r.rest)) {
		r.fail()
		return ""
	}
	s := string(r.take(int(size)))
	r.texts = append(r.texts, s)
	return s
}

// changed unpacks the texts of a term over those of the term before it.
func (r *reader) changed(texts *[termTexts]string) {
	bits := r.take(1)[0]
	for i := range texts {
		if bits&(1<<i) != 0 {
			texts[i] = r.text()
		}
	}
}

func (r *reader) grant() fence.Grant { return fence.Grant(hex.EncodeToString(r.take(16))) }

// count reads how many items follow. More than most are an error: an item takes
// far more room in memory than in etcd, and others may have written it.
func (r *reader) count(most int) int {
	n := r.unsigned()
	if n > uint64(most) {
		r.fail()
		return 0
	}
	return int(n)
}

// decodeRecord unpacks the record of a key. Its error matches [ErrDamaged].
func decodeRecord(key string, value []byte) (*storedRecord, error) {
	r := &reader{rest: value}
	if r.take(1)[0] != recordFormat {
		return nil, damaged(key, errFormat)
	}
	r.base = r.number()
	d := &storedRecord{written: time.UnixMicro(r.base).UTC(), clock: r.id(), lease: clientv3.LeaseID(r.number())}
	d.page = pageID{store: r.id(), number: uint32(r.unsigned())}
	d.slot, d.offeredTo = int(r.unsigned()), r.id()

	rec := &d.rec
	rec.Key, rec.Token, rec.Grant = key, fence.Token(r.number()), r.grant()
	rec.Owner, rec.Instance = r.text(), r.text()
	rec.State, rec.Cause, rec.Ended = tenure.State(r.text()), tenure.Cause(r.text()), tenure.End(r.text())
	rec.Actor, rec.Note, rec.Progress = r.text(), r.text(), r.text()
	rec.Acquired, rec.Renewed, rec.Deadline = r.time(), r.time(), r.time()
	rec.Succeeded, rec.Grid, rec.HoldUntil, rec.ProgressAt = r.time(), r.time(), r.time(), r.time()
	rec.TTL, rec.Every, rec.Terms = r.span(), r.span(), r.number()
	if n := r.count(tenure.MaxGuards); n > 0 {
		rec.Guards = make([]string, n)
		for i := range rec.Guards {
			rec.Guards[i] = r.text()
		}
	}
	d.shelved = fence.Token(r.number())
	rec.History = r.terms()
	var older []tenure.Term
	if d.shelved != 0 && len(r.rest) > 0 {
		older = r.terms()
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = errFormat
	}
	if r.err == nil {
		r.err = rec.Check()
	}
	if r.err == nil && older != nil {
		r.err = d.attachOlder(older)
	}
	if r.err != nil {
		return nil, damaged(key, r.err)
	}
	return d, nil
}

// terms unpacks the terms of a history. It returns nil if there are none.
func (r *reader) terms() []tenure.Term {
	n := r.count(tenure.HistoryLen)
	if n == 0 {
		return nil
	}
	terms := make([]tenure.Term, n)
	var texts [termTexts]string
	for i := range terms {
		t := &terms[i]
		r.changed(&texts)
		t.Owner, t.Instance = texts[0], texts[1]
		t.State, t.Cause, t.Ended = tenure.State(texts[2]), tenure.Cause(texts[3]), tenure.End(texts[4])
		t.Actor, t.Note, t.Grant = texts[5], texts[6], r.grant()
		t.Acquired = r.time()
		r.base = t.Acquired.UnixMicro()
		t.Token, t.Finished = fence.Token(r.base+r.number()), r.time()
	}
	return terms
}

// encode packs a page.
func (p *page) encode() string {
	w := &writer{out: make([]byte, 0, 32+3*len(p.renewed)), base: p.written.UnixMicro()}
	w.out = append(w.out, pageFormat)
	w.number(w.base)
	w.id(p.clock)
	w.number(int64(p.lease))
	for slot := range pageSize {
		if t, there := p.renewed[slot]; there || p.over[slot] {
			if p.over[slot] {
				t = time.UnixMicro(0) // stands for "over": nothing was renewed then
			}
			w.unsigned(uint64(slot))
			w.number(t.UnixMicro() - w.base)
		}
	}
	return string(w.out)
}

// maxPageBytes is more than a page has: 96 leases take at most 1,085 bytes.
const maxPageBytes = 2048

func decodePage(name string, value []byte) (*page, error) {
	r := &reader{rest: value}
	if r.take(1)[0] != pageFormat {
		r.fail()
	}
	r.base = r.number()
	p := &page{
		written: time.UnixMicro(r.base).UTC(), clock: r.id(), lease: clientv3.LeaseID(r.number()),
		renewed: map[int]time.Time{}, over: map[int]bool{},
	}
	for len(r.rest) > 0 {
		slot := r.count(pageSize - 1)
		if at := r.base + r.number(); at == 0 {
			p.over[slot] = true
		} else {
			p.renewed[slot] = time.UnixMicro(at).UTC()
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: page %q: %w", ErrDamaged, name, r.err)
	}
	return p, nil
}

// ErrDamaged is matched by errors about a record that the law cannot have made.
// The store decides nothing on it and does not overwrite it.
var ErrDamaged = errors.New("damaged record")

// damaged makes an error that matches ErrDamaged. It must not match
// fence.ErrInvalid, as err may: the caller's input was good.
func damaged(key string, err error) error {
	return fmt.Errorf("%w: key %.200q: %s; if the key may be forgotten, delete %.200q, "+
		"with the store's prefix before it, from etcd", ErrDamaged, key, err.Error(), "r/"+key)
}
