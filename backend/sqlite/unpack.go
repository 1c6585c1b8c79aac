package sqlite

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

var (
	errShort   = errors.New("it ends too early")
	errUnknown = errors.New("a newer Croft has written it: use that")
	errSum     = errors.New("its checksum does not match: it was altered, or moved to another key")
)

// unpacker reads a record.
type unpacker struct {
	raw   []byte
	text  string // the same: words are parts of it
	at    int
	words []string
	last  int64
	err   error
}

// unpack reads what pack wrote and checks that it can be one of the law's.
func unpack(key string, raw []byte) (tenure.Record, error) {
	rec, err := unpackOnly(key, raw)
	if err == nil {
		err = rec.Check()
	}
	if err != nil {
		// Its error must not match fence.ErrInvalid as the record's own does: the caller's input was good.
		return tenure.Record{}, fmt.Errorf("%w: key %q: %s; delete its row from the table croft_lease if the key may be forgotten", ErrDamaged, key, err.Error())
	}
	return rec, nil
}

func unpackOnly(key string, raw []byte) (tenure.Record, error) {
	switch {
	case len(raw) < 5:
		return tenure.Record{}, errShort
	case raw[0] != packedV1:
		return tenure.Record{}, errUnknown
	case binary.LittleEndian.Uint32(raw[len(raw)-4:]) != checksum(key, raw[:len(raw)-4]):
		return tenure.Record{}, errSum
	}
	raw = raw[1 : len(raw)-4]
	u := &unpacker{raw: raw, text: string(raw)}
	terms := u.count(tenure.HistoryLen)
	grants := make([]byte, 0, 32*(terms+1))
	rec := tenure.Record{Key: key}
	rec.Acquired = u.time()
	rec.Token = fence.Token(u.last + u.signed())
	grants = u.grant(grants)
	rec.Owner, rec.Instance = u.word(), u.word()
	rec.State, rec.Cause, rec.Ended = tenure.State(u.word()), tenure.Cause(u.word()), tenure.End(u.word())
	rec.Actor, rec.Note, rec.Progress = u.word(), u.word(), u.word()
	rec.Renewed, rec.Deadline, rec.Succeeded, rec.HoldUntil, rec.ProgressAt = u.time(), u.time(), u.time(), u.time(), u.time()
	rec.TTL, rec.Every, rec.Terms = time.Duration(u.signed()), time.Duration(u.signed()), u.signed()
	if n := u.count(tenure.MaxGuards); n > 0 {
		rec.Guards = make([]string, n)
		for i := range rec.Guards {
			rec.Guards[i] = u.word()
		}
	}
	rec.History = make([]tenure.Term, terms)
	for i := range rec.History {
		t := &rec.History[i]
		t.Acquired = u.time()
		t.Token = fence.Token(u.last + u.signed())
		grants = u.grant(grants)
		t.Owner, t.Instance = u.word(), u.word()
		t.State, t.Cause = tenure.State(u.word()), tenure.Cause(u.word())
		t.Actor, t.Note = u.word(), u.word()
		t.Finished, t.Ended = u.time(), tenure.End(u.word())
	}
	switch {
	case u.err != nil:
		return tenure.Record{}, u.err
	case u.at != len(u.raw):
		return tenure.Record{}, errors.New("something stands behind its end")
	}
	all := fence.Grant(grants) // one piece of memory for all
	rec.Grant = all[:32]
	for i := range rec.History {
		rec.History[i].Grant = all[32*(i+1) : 32*(i+2)]
	}
	return rec, nil
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

// count reads a number of things, of which there are never more than most.
func (u *unpacker) count(most int) int {
	n := u.number()
	if n > uint64(most) {
		u.err = fmt.Errorf("it has %d of what there are at most %d", n, most)
		return 0
	}
	return int(n)
}

func (u *unpacker) time() time.Time {
	n := u.number()
	if n == 0 {
		return time.Time{}
	}
	n--
	u.last += int64(n>>1) ^ -int64(n&1)
	return time.UnixMicro(u.last).UTC()
}

func (u *unpacker) grant(to []byte) []byte {
	if len(u.raw)-u.at < 16 {
		u.short()
		return to
	}
	to = hex.AppendEncode(to, u.raw[u.at:u.at+16])
	u.at += 16
	return to
}

func (u *unpacker) word() string {
	n := u.number()
	switch {
	case n == 0:
		size := u.number()
		if size > uint64(len(u.raw)-u.at) {
			u.short()
			return ""
		}
		s := u.text[u.at : u.at+int(size)]
		u.at += int(size)
		u.words = append(u.words, s)
		return s
	case n <= uint64(len(known)):
		return known[n-1]
	case n-uint64(len(known)) <= uint64(len(u.words)):
		return u.words[n-uint64(len(known))-1]
	}
	if u.err == nil {
		u.err = fmt.Errorf("it has no word %d", n)
	}
	return ""
}

func (u *unpacker) short() {
	if u.err == nil {
		u.err = errShort
	}
	u.at = len(u.raw)
}
