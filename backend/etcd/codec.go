package etcd

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
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
	// store is the store that carries a held or reserved key.
	store identity
	// named is the store that is offered a freed key: a hint.
	named identity
}

const (
	recordFormat    = 7
	heartbeatFormat = 1
)

var errFormat = errors.New("it was not written by this version of the program")

// packer packs values, or unpacks them in the same order. Numbers are varints.
// Times are microseconds from a base. A text is packed once and then referred
// to by number. After the first misfit, unpacking leaves values as they are,
// and err is set.
type packer struct {
	unpacks bool
	bytes   []byte // the packed values, or those that are left to unpack
	base    time.Time
	texts   []string
	err     error
}

func (p *packer) fail() { p.bytes, p.err = nil, errFormat }

func number[T ~int64 | ~uint64 | ~uint32](p *packer, n *T) {
	if !p.unpacks {
		p.bytes = binary.AppendVarint(p.bytes, int64(*n))
		return
	}
	got, size := binary.Varint(p.bytes)
	if size <= 0 {
		p.fail()
		return
	}
	*n, p.bytes = T(got), p.bytes[size:]
}

// time packs a time as twice its distance from the base, and one. 0 stands for
// the zero time.
func (p *packer) time(t *time.Time) {
	n := int64(0)
	if !t.IsZero() {
		n = (t.UnixMicro()-p.base.UnixMicro())<<1 | 1
	}
	if number(p, &n); p.unpacks && n != 0 {
		*t = time.UnixMicro(p.base.UnixMicro() + n>>1).UTC()
	}
}

// text packs the number of a known text, or 0, a length and a new text.
func text[T ~string](p *packer, s *T) {
	known := int64(slices.Index(p.texts, string(*s)) + 1) // they are few
	number(p, &known)
	switch {
	case known < 0 || known > int64(len(p.texts)):
		p.fail()
	case known > 0:
		*s = T(p.texts[known-1])
	default:
		size := int64(len(*s))
		if number(p, &size); !p.unpacks {
			p.bytes = append(p.bytes, *s...)
		} else if size < 0 || size > int64(len(p.bytes)) {
			p.fail()
			return
		} else {
			*s, p.bytes = T(p.bytes[:size]), p.bytes[size:]
		}
		p.texts = append(p.texts, string(*s))
	}
}

func (p *packer) grant(g *fence.Grant) {
	const size = 16
	switch raw, err := hex.DecodeString(string(*g)); {
	case !p.unpacks && err == nil && len(raw) == size:
		p.bytes = append(p.bytes, raw...)
	case !p.unpacks: // not one of the law's grants
		p.bytes = append(p.bytes, make([]byte, size)...)
	case len(p.bytes) < size:
		p.fail()
	default:
		*g, p.bytes = fence.Grant(hex.EncodeToString(p.bytes[:size])), p.bytes[size:]
	}
}

// list packs a list. More than most items are an error: an item takes far more
// room in memory than in etcd, and others may have written it.
func list[T any](p *packer, items *[]T, most int, item func(*T)) {
	n := int64(len(*items))
	if number(p, &n); n < 0 || n > int64(most) {
		p.fail()
		return
	}
	if p.unpacks && n > 0 {
		*items = make([]T, n)
	}
	for i := range *items {
		item(&(*items)[i])
	}
}

// pack packs a stored record, or unpacks it. It leaves out the key, which is in
// the name.
func (d *storedRecord) pack(p *packer) {
	p.time(&d.written)
	p.base = d.written
	number(p, &d.clock)
	number(p, &d.store)
	number(p, &d.named)
	r := &d.rec
	number(p, &r.Token)
	p.grant(&r.Grant)
	for _, s := range []*string{&r.Owner, &r.Instance, &r.Actor, &r.Note, &r.Progress, &r.Checkpoint} {
		text(p, s)
	}
	text(p, &r.State)
	text(p, &r.Cause)
	text(p, &r.Ended)
	for _, t := range []*time.Time{
		&r.Acquired, &r.Renewed, &r.Deadline, &r.Succeeded, &r.Grid, &r.HoldUntil, &r.ProgressAt,
	} {
		p.time(t)
	}
	number(p, &r.TTL)
	number(p, &r.Every)
	number(p, &r.Terms)
	list(p, &r.Guards, tenure.MaxGuards, func(g *string) { text(p, g) })
	list(p, &r.History, tenure.HistoryLen, func(t *tenure.Term) {
		p.time(&t.Acquired)
		p.base = t.Acquired
		ahead := int64(t.Token) - t.Acquired.UnixMicro() // mostly small
		number(p, &ahead)
		t.Token = fence.Token(t.Acquired.UnixMicro() + ahead)
		p.grant(&t.Grant)
		for _, s := range []*string{&t.Owner, &t.Instance, &t.Actor, &t.Note} {
			text(p, s)
		}
		text(p, &t.State)
		text(p, &t.Cause)
		text(p, &t.Ended)
		p.time(&t.Finished)
	})
}

func (d *storedRecord) encode() string {
	p := &packer{bytes: append(make([]byte, 0, 256+48*len(d.rec.History)), recordFormat)}
	d.pack(p)
	return string(p.bytes)
}

// decodeRecord unpacks the record of a key. Its error matches [ErrDamaged].
func decodeRecord(key string, value []byte) (*storedRecord, error) {
	if len(value) == 0 || value[0] != recordFormat {
		return nil, damaged(key, errFormat)
	}
	p, d := &packer{unpacks: true, bytes: value[1:]}, &storedRecord{}
	d.rec.Key = key
	d.pack(p)
	if p.err == nil && (len(p.bytes) > 0 || carried(&d.rec) && d.store == 0) {
		p.err = errFormat
	}
	if p.err == nil {
		p.err = d.rec.Check()
	}
	if p.err != nil {
		return nil, damaged(key, p.err)
	}
	return d, nil
}

func (b *heartbeat) pack(p *packer) {
	p.time(&b.written)
	p.base = b.written
	p.time(&b.renewed)
}

func (b *heartbeat) encode() string {
	p := &packer{bytes: []byte{heartbeatFormat}}
	b.pack(p)
	return string(p.bytes)
}

// decodeHeartbeat unpacks the heartbeat of a key. Its error matches
// [ErrDamaged].
func decodeHeartbeat(key string, value []byte) (b heartbeat, err error) {
	if len(value) == 0 || value[0] != heartbeatFormat {
		return b, damaged(key, errFormat)
	}
	p := &packer{unpacks: true, bytes: value[1:]}
	if b.pack(p); p.err != nil || len(p.bytes) > 0 {
		return b, damaged(key, errFormat)
	}
	return b, nil
}

// ErrDamaged is matched by errors about a record that the law cannot have made.
// The store decides nothing on it and does not overwrite it.
var ErrDamaged = store.ErrDamaged

// damaged makes an error that matches ErrDamaged. It must not match
// fence.ErrInvalid, as err may: the caller's input was good.
func damaged(key string, err error) error {
	return fmt.Errorf("%w: key %.200q: %s; if the key may be forgotten, delete %.200q, "+
		"with the store's prefix before it, from etcd", ErrDamaged, key, err.Error(), "r/"+key)
}
