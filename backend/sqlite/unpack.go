package sqlite

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/tenure"
)

var (
	errShort   = errors.New("it ends too early")
	errUnknown = errors.New("another version of Croft has written it: use that")
	errSum     = errors.New("its checksum does not match: it was altered, or moved to another key")
)

// unpack reads a packed record. It leaves the older transfers packed, in the
// bytes of raw. Its error matches [ErrDamaged].
func unpack(key string, raw []byte) (kept, error) {
	k, err := unpackHead(key, raw)
	if err == nil {
		err = k.head.Check()
	}
	if err != nil {
		return kept{}, damaged(key, err)
	}
	return k, nil
}

// record returns the record with its whole history. Its error matches
// [ErrDamaged].
func (k *kept) record() (tenure.Record, error) {
	rec := k.head
	if rec.IsZero() {
		return rec, nil
	}
	rec.Guards = slices.Clone(rec.Guards) // callers may change theirs
	var err error
	if rec.History, err = k.past.unpack(); err == nil {
		rec.History = append(rec.History, k.head.History...)
		err = rec.Check()
	}
	if err != nil {
		return tenure.Record{}, damaged(rec.Key, err)
	}
	return rec, nil
}

// replace sets k to a record with its whole history.
func (k *kept) replace(rec tenure.Record) error {
	var anew past
	last := len(rec.History) - 1
	for i := range rec.History[:last] {
		if err := anew.add(&rec.History[i]); err != nil {
			return err
		}
	}
	k.head, k.past = rec, anew
	k.head.History = rec.History[last:]
	return nil
}

// repack packs the transfers anew. That drops the words that none of them uses.
func (k *kept) repack() error {
	rec, err := k.record()
	if err != nil {
		return err
	}
	return k.replace(rec)
}

// damaged makes an error about a key's record. It must not match
// fence.ErrInvalid, as err may, because the caller's input was good.
func damaged(key string, err error) error {
	return fmt.Errorf("%w: key %q: %s; delete its row from the table croft_lease if the key may be forgotten",
		ErrDamaged, key, err.Error())
}

func unpackHead(key string, raw []byte) (kept, error) {
	switch {
	case len(raw) < 5:
		return kept{}, errShort
	case raw[0] != packedV3:
		return kept{}, errUnknown
	case binary.LittleEndian.Uint32(raw[len(raw)-4:]) != checksum(key, raw[:len(raw)-4]):
		return kept{}, errSum
	}
	u := &unpacker{raw: raw[1 : len(raw)-4]}
	u.readWords()
	k := kept{head: tenure.Record{Key: key}}
	rec := &k.head
	rec.Grant = u.grant()
	at := int64(0)
	rec.Acquired = u.time(0)
	if !rec.Acquired.IsZero() {
		at = rec.Acquired.UnixMicro()
	}
	rec.Token = fence.Token(at + u.signed())
	rec.Owner, rec.Instance = u.word(), u.word()
	rec.State, rec.Cause, rec.Ended = tenure.State(u.word()), tenure.Cause(u.word()), tenure.End(u.word())
	rec.Actor, rec.Note, rec.Progress = u.word(), u.word(), u.word()
	rec.Renewed, rec.Deadline, rec.Succeeded = u.time(at), u.time(at), u.time(at)
	rec.Grid, rec.HoldUntil, rec.ProgressAt = u.time(at), u.time(at), u.time(at)
	rec.TTL, rec.Every, rec.Terms = time.Duration(u.signed()), time.Duration(u.signed()), u.signed()
	rec.Checkpoint = u.bytes(u.count(tenure.MaxCheckpoint))
	if n := u.count(tenure.MaxGuards); n > 0 {
		rec.Guards = make([]string, n)
		for i := range rec.Guards {
			rec.Guards[i] = u.word()
		}
	}
	rec.History = []tenure.Term{terms.Newest(rec)}
	k.past = past{words: u.words, count: u.count(longestPast)}
	if u.err != nil {
		return kept{}, u.err
	}
	k.past.terms = u.raw[u.at:]
	return k, k.past.check()
}

// check makes sure that the number of transfers is right, and that each is long
// enough to have a grant.
func (p *past) check() error {
	n := 0
	for at := 0; at < len(p.terms); n++ {
		size := int(p.terms[at])
		if size < 16 || len(p.terms)-at-1 < size {
			return errShort
		}
		at += 1 + size
	}
	if n != p.count {
		return fmt.Errorf("it has %d transfers and says %d", n, p.count)
	}
	return nil
}

// unpack reads all transfers.
func (p *past) unpack() ([]tenure.Term, error) {
	terms := make([]tenure.Term, 0, p.count+1)
	for at := 0; at < len(p.terms); at += 1 + int(p.terms[at]) {
		u := &unpacker{raw: p.terms[at+1 : at+1+int(p.terms[at])], words: p.words}
		t := tenure.Term{Grant: u.grant(), Acquired: u.time(0)}
		us := int64(0)
		if !t.Acquired.IsZero() {
			us = t.Acquired.UnixMicro()
		}
		t.Token, t.Finished = fence.Token(us+u.signed()), u.time(us)
		t.Owner, t.Instance = u.word(), u.word()
		t.State, t.Cause, t.Ended = tenure.State(u.word()), tenure.Cause(u.word()), tenure.End(u.word())
		t.Actor, t.Note = u.word(), u.word()
		if u.err == nil && u.at != len(u.raw) {
			u.err = errors.New("something stands behind the end of a transfer")
		}
		if u.err != nil {
			return nil, u.err
		}
		terms = append(terms, t)
	}
	return terms, nil
}

// unpacker reads fields. err is the first failure; fields after it are zero.
type unpacker struct {
	raw   []byte
	at    int
	words []string
	err   error
}

func (u *unpacker) readWords() {
	n := u.count(len(u.raw))
	u.words = make([]string, 0, n)
	for range n {
		u.words = append(u.words, u.bytes(u.count(len(u.raw))))
		if u.err != nil {
			return
		}
	}
}

// bytes reads so many bytes.
func (u *unpacker) bytes(size int) string {
	if size > len(u.raw)-u.at {
		u.short()
		return ""
	}
	u.at += size
	return string(u.raw[u.at-size : u.at])
}

func (u *unpacker) number() uint64 {
	n, size := binary.Uvarint(u.raw[u.at:])
	if size <= 0 {
		u.short()
		return 0
	}
	u.at += size
	return n
}

func (u *unpacker) signed() int64 {
	n, size := binary.Varint(u.raw[u.at:])
	if size <= 0 {
		u.short()
		return 0
	}
	u.at += size
	return n
}

// count reads a number, and fails if it is greater than most.
func (u *unpacker) count(most int) int {
	n := u.number()
	if n > uint64(most) {
		u.fail(fmt.Errorf("it has %d of what there are at most %d", n, most))
		return 0
	}
	return int(n)
}

func (u *unpacker) time(after int64) time.Time {
	n := u.number()
	if n == 0 {
		return time.Time{}
	}
	n--
	return time.UnixMicro(after + (int64(n>>1) ^ -int64(n&1))).UTC()
}

func (u *unpacker) grant() fence.Grant {
	if len(u.raw)-u.at < 16 {
		u.short()
		return ""
	}
	g := hex.EncodeToString(u.raw[u.at : u.at+16])
	u.at += 16
	return fence.Grant(g)
}

func (u *unpacker) word() string {
	n := u.number()
	switch {
	case n < uint64(len(known)):
		return known[n]
	case n-uint64(len(known)) < uint64(len(u.words)):
		return u.words[n-uint64(len(known))]
	}
	u.fail(fmt.Errorf("it has no word %d", n))
	return ""
}

func (u *unpacker) short() {
	u.fail(errShort)
	u.at = len(u.raw)
}

func (u *unpacker) fail(err error) {
	if u.err == nil {
		u.err = err
	}
}
