package etcd

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// storedRecord is the value of a key's record in etcd: the record, and what its
// deadline depends on.
type storedRecord struct {
	rec tenure.Record
	// clock is the clock that all times are on. written is its time when this
	// was written.
	clock   identity
	written time.Time
	// page is the page with which a held or reserved key lives.
	page pageID
	// named is the first store in the queue of a freed key: a hint.
	named identity
}

// page is the value of a page in etcd. Its times are on the clock of the
// records that name it.
type page struct {
	written time.Time
	renewed map[uint64]time.Time // by the short form of the grant
}

// short returns the first half of a grant's fingerprint. Pages name leases so.
func short(g fence.Grant) uint64 {
	n, _ := strconv.ParseUint(fmt.Sprintf("%.16s", string(g)), 16, 64)
	return n
}

const (
	recordFormat = 3
	pageFormat   = 2
)

var errFormat = errors.New("it was not written by this version of the program")

// writer packs values. Numbers are varints. Times are microseconds from a base.
// A text is written once and then referred to by number.
type writer struct {
	out   []byte
	base  int64
	texts []string
}

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
	for i, known := range w.texts { // they are few, and the first ones occur most
		if known == s {
			w.unsigned(uint64(i) + 1)
			return
		}
	}
	w.out = append(w.out, 0)
	w.unsigned(uint64(len(s)))
	w.out = append(w.out, s...)
	w.texts = append(w.texts, s)
}

func (w *writer) grant(g fence.Grant) {
	var raw [16]byte // stays zero if g is not one of the law's grants
	if len(g) == 32 {
		_, _ = hex.Decode(raw[:], []byte(g))
	}
	w.out = append(w.out, raw[:]...)
}

// encode packs a stored record. It leaves out the key, which is in the name.
func (d *storedRecord) encode() string {
	r := &d.rec
	w := &writer{out: make([]byte, 0, 256+48*len(r.History)), base: d.written.UnixMicro()}
	w.out = append(w.out, recordFormat)
	w.number(w.base)
	w.id(d.clock)
	w.id(d.page.store)
	w.unsigned(uint64(d.page.number))
	w.id(d.named)
	w.number(int64(r.Token))
	w.grant(r.Grant)
	for _, s := range []string{
		r.Owner, r.Instance, string(r.State), string(r.Cause), string(r.Ended), r.Actor, r.Note, r.Progress,
	} {
		w.text(s)
	}
	for _, t := range []time.Time{r.Acquired, r.Renewed, r.Deadline, r.Succeeded, r.HoldUntil, r.ProgressAt} {
		w.time(t)
	}
	w.span(r.TTL)
	w.span(r.Every)
	w.number(r.Terms)
	w.unsigned(uint64(len(r.Guards)))
	for _, g := range r.Guards {
		w.text(g)
	}
	w.unsigned(uint64(len(r.History)))
	for i := range r.History {
		t := &r.History[i]
		for _, s := range []string{
			t.Owner, t.Instance, string(t.State), string(t.Cause), string(t.Ended), t.Actor, t.Note,
		} {
			w.text(s)
		}
		w.grant(t.Grant)
		w.time(t.Acquired)
		w.base = t.Acquired.UnixMicro() // the next times and the token are near it
		w.number(int64(t.Token) - w.base)
		w.time(t.Finished)
	}
	return string(w.out)
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

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail()
		return make([]byte, min(n, 16))
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) number() int64 {
	n, size := binary.Varint(r.rest)
	r.take(uint64(size)) // a negative size is more than there is
	if size == 0 {
		r.fail()
	}
	return n
}

func (r *reader) unsigned() uint64 {
	n, size := binary.Uvarint(r.rest)
	r.take(uint64(size))
	if size == 0 {
		r.fail()
	}
	return n
}

func (r *reader) id() identity        { return identity(binary.BigEndian.Uint64(r.take(8))) }
func (r *reader) span() time.Duration { return time.Duration(r.number()) * time.Microsecond }
func (r *reader) grant() fence.Grant  { return fence.Grant(hex.EncodeToString(r.take(16))) }

func (r *reader) time() time.Time {
	if r.take(1)[0] == 0 {
		return time.Time{}
	}
	return time.UnixMicro(r.base + r.number()).UTC()
}

func (r *reader) text() string {
	n := r.unsigned()
	switch {
	case n > uint64(len(r.texts)):
		r.fail()
		return ""
	case n > 0:
		return r.texts[n-1]
	}
	size := r.unsigned()
	if size > uint64(len(r.rest)) {
		r.fail()
		return ""
	}
	s := string(r.take(size))
	r.texts = append(r.texts, s)
	return s
}

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
	d := &storedRecord{written: time.UnixMicro(r.base).UTC(), clock: r.id()}
	d.page = pageID{store: r.id(), number: uint32(r.unsigned())}
	d.named = r.id()
	rec := &d.rec
	rec.Key, rec.Token, rec.Grant = key, fence.Token(r.number()), r.grant()
	rec.Owner, rec.Instance = r.text(), r.text()
	rec.State, rec.Cause, rec.Ended = tenure.State(r.text()), tenure.Cause(r.text()), tenure.End(r.text())
	rec.Actor, rec.Note, rec.Progress = r.text(), r.text(), r.text()
	rec.Acquired, rec.Renewed, rec.Deadline = r.time(), r.time(), r.time()
	rec.Succeeded, rec.HoldUntil, rec.ProgressAt = r.time(), r.time(), r.time()
	rec.TTL, rec.Every, rec.Terms = r.span(), r.span(), r.number()
	for range r.count(tenure.MaxGuards) {
		rec.Guards = append(rec.Guards, r.text())
	}
	if n := r.count(tenure.HistoryLen); n > 0 {
		rec.History = make([]tenure.Term, n)
	}
	for i := range rec.History {
		t := &rec.History[i]
		t.Owner, t.Instance, t.State, t.Cause = r.text(), r.text(), tenure.State(r.text()), tenure.Cause(r.text())
		t.Ended, t.Actor, t.Note, t.Grant = tenure.End(r.text()), r.text(), r.text(), r.grant()
		t.Acquired = r.time()
		r.base = t.Acquired.UnixMicro()
		t.Token, t.Finished = fence.Token(r.base+r.number()), r.time()
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = errFormat
	}
	if r.err == nil {
		r.err = rec.Check()
	}
	if r.err == nil && rec.State != tenure.Free && d.page.store == 0 {
		r.err = errFormat
	}
	if r.err != nil {
		return nil, damaged(key, r.err)
	}
	return d, nil
}

// encode packs a page.
func (p *page) encode() string {
	w := &writer{out: make([]byte, 0, 16+16*len(p.renewed)), base: p.written.UnixMicro()}
	w.out = append(w.out, pageFormat)
	w.number(w.base)
	for grant, t := range p.renewed {
		w.id(identity(grant))
		w.number(t.UnixMicro() - w.base)
	}
	return string(w.out)
}

// maxPageBytes is more than a page has: 96 leases take at most 1,739 bytes.
const maxPageBytes = 2048

func decodePage(name string, value []byte) (*page, error) {
	r := &reader{rest: value}
	if len(value) > maxPageBytes || r.take(1)[0] != pageFormat {
		r.fail()
	}
	r.base = r.number()
	p := &page{written: time.UnixMicro(r.base).UTC(), renewed: map[uint64]time.Time{}}
	for len(r.rest) > 0 {
		grant := uint64(r.id())
		p.renewed[grant] = time.UnixMicro(r.base + r.number()).UTC()
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: page %.200q: %w", ErrDamaged, name, r.err)
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
