package sqlite

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by the error about a record, or a guard's mark, that cannot be one of the law's: somebody has changed it by hand, or the file is damaged. Nothing is decided
// from it and nothing is written over it.
var ErrDamaged = errors.New("damaged record")

// A packed record is a byte that says how it is packed, what it holds, and a checksum over the key and both. A record with a whole history takes about a kilobyte, so that it lies in one page.
// Times are microseconds after the time before; words that occur again, or that the law itself uses, are numbers.
const packedV1 = 1

// known are the law's own words. Their numbers are written into records, and so are those of a record's own words, which come after them: a change of this list is another way of packing.
var known = []string{
	"",
	string(tenure.Held), string(tenure.Free), string(tenure.Reserved),
	string(tenure.First), string(tenure.Released), string(tenure.Expired), string(tenure.Handoff), string(tenure.Operator), string(tenure.Cancelled), string(tenure.Recovery),
	string(tenure.EndFailed), string(tenure.EndTakenOver), string(tenure.EndSuperseded),
}

// knownNumber is a known word's number; 0 if it is none. The compiler makes a search of it.
func knownNumber(s string) uint64 {
	switch s {
	case "":
		return 1
	case string(tenure.Held):
		return 2
	case string(tenure.Free):
		return 3
	case string(tenure.Reserved):
		return 4
	case string(tenure.First):
		return 5
	case string(tenure.Released):
		return 6
	case string(tenure.Expired):
		return 7
	case string(tenure.Handoff):
		return 8
	case string(tenure.Operator):
		return 9
	case string(tenure.Cancelled):
		return 10
	case string(tenure.Recovery):
		return 11
	case string(tenure.EndFailed):
		return 12
	case string(tenure.EndTakenOver):
		return 13
	case string(tenure.EndSuperseded):
		return 14
	}
	return 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(key string, packed []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, packed)
}

// packer writes a record.
type packer struct {
	to    []byte
	words []string // its own, after the known ones
	last  int64    // the time before
	err   error
}

// pack appends a record to a buffer.
func (p *packer) pack(rec *tenure.Record) ([]byte, error) {
	start := len(p.to)
	p.words, p.last, p.err = p.words[:0], 0, nil
	p.to = append(p.to, packedV1)
	p.number(uint64(len(rec.History)))
	p.time(rec.Acquired)
	p.signed(int64(rec.Token) - p.last)
	p.grant(rec.Grant)
	for _, word := range []string{rec.Owner, rec.Instance, string(rec.State), string(rec.Cause), string(rec.Ended), rec.Actor, rec.Note, rec.Progress} {
		p.word(word)
	}
	for _, t := range []time.Time{rec.Renewed, rec.Deadline, rec.Succeeded, rec.HoldUntil, rec.ProgressAt} {
		p.time(t)
	}
	p.signed(int64(rec.TTL))
	p.signed(int64(rec.Every))
	p.signed(rec.Terms)
	p.number(uint64(len(rec.Guards)))
	for _, g := range rec.Guards {
		p.word(g)
	}
	for i := range rec.History {
		t := &rec.History[i]
		p.time(t.Acquired)
		p.signed(int64(t.Token) - p.last)
		p.grant(t.Grant)
		p.word(t.Owner)
		p.word(t.Instance)
		p.word(string(t.State))
		p.word(string(t.Cause))
		p.word(t.Actor)
		p.word(t.Note)
		p.time(t.Finished)
		p.word(string(t.Ended))
	}
	p.to = binary.LittleEndian.AppendUint32(p.to, checksum(rec.Key, p.to[start:]))
	return p.to[start:], p.err
}

func (p *packer) number(n uint64) { p.to = binary.AppendUvarint(p.to, n) }
func (p *packer) signed(n int64)  { p.to = binary.AppendVarint(p.to, n) }

// time writes how much later it is than the time before. Zero is no time; so what is not later counts from one.
func (p *packer) time(t time.Time) {
	if t.IsZero() {
		p.number(0)
		return
	}
	us := t.UnixMicro()
	n := us - p.last
	p.number((uint64(n)<<1 ^ uint64(n>>63)) + 1)
	p.last = us
}

func (p *packer) grant(g fence.Grant) {
	if len(g) != 32 {
		p.err = fmt.Errorf("grant %q is not one", g)
		return
	}
	var raw [16]byte
	if _, err := hex.Decode(raw[:], []byte(g)); err != nil {
		p.err = err
	}
	p.to = append(p.to, raw[:]...)
}

func (p *packer) word(s string) {
	if n := knownNumber(s); n > 0 {
		p.number(n)
		return
	}
	for i, w := range p.words {
		if w == s {
			p.number(uint64(len(known) + i + 1))
			return
		}
	}
	p.number(0)
	p.number(uint64(len(s)))
	p.to = append(p.to, s...)
	p.words = append(p.words, s)
}
