package sqlite

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by errors about a record, or a guard's mark, that Croft
// cannot have written: somebody has changed it by hand, or the file is damaged.
// Croft decides nothing by it and does not overwrite it.
var ErrDamaged = store.ErrDamaged

// packedV3 is the first byte of a packed record and says how it is packed.
// After it come:
//
//   - the record's own words: strings that the fields refer to by number
//   - the record's fields
//   - the transfers before the newest; the newest follows from the fields
//   - a checksum over the key and all bytes before it
//
// With a full history a record takes little more than a kilobyte, so it fits
// into one page. Deciding a request does not unpack the transfers, unless the
// request is a late copy of one of them.
const packedV3 = 3

// known lists the law's own words. A number below len(known) refers to them,
// and a higher one to the record's own words. These numbers are in every
// record, so changing this list needs a new first byte.
var known = []string{
	"",
	string(tenure.Held), string(tenure.Free), string(tenure.Reserved),
	string(tenure.First), string(tenure.Released), string(tenure.Expired), string(tenure.Handoff),
	string(tenure.Operator), string(tenure.Cancelled), string(tenure.Recovery),
	string(tenure.EndFailed), string(tenure.EndTakenOver), string(tenure.EndSuperseded),
}

// mostWords is the number of own words above which pack drops those that only
// forgotten transfers have used.
const mostWords = 96

// kept is a key's record as the store holds it in memory.
type kept struct {
	// head is the record; its history is the newest transfer only. It is zero
	// if the key has no record.
	head tenure.Record
	past past
}

// past holds the transfers before the newest, packed, oldest first.
type past struct {
	words []string // the record's own words
	terms []byte
	own   bool // terms is not part of the bytes that were read, and may grow
	count int
}

// longestPast is the largest number of transfers before the newest.
const longestPast = tenure.HistoryLen - 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(key string, packed []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, packed)
}

// pack appends the record to a buffer.
func (k *kept) pack(to []byte) ([]byte, error) {
	start := len(to)
	rec := &k.head
	if len(k.past.words) > mostWords {
		if err := k.repack(); err != nil {
			return nil, err
		}
	}
	var room [192]byte // enough for most records, without an allocation
	p := packer{to: room[:0], words: &k.past.words}
	raw, err := rawGrant(rec.Grant)
	if err != nil {
		return nil, err
	}
	p.to = append(p.to, raw[:]...)
	p.time(rec.Acquired, 0)
	at := rec.Acquired.UnixMicro()
	p.signed(int64(rec.Token) - at)
	for _, word := range []string{
		rec.Owner, rec.Instance, string(rec.State), string(rec.Cause), string(rec.Ended),
		rec.Actor, rec.Note, rec.Progress,
	} {
		p.word(word)
	}
	for _, t := range []time.Time{
		rec.Renewed, rec.Deadline, rec.Succeeded, rec.Grid, rec.HoldUntil, rec.ProgressAt,
	} {
		p.time(t, at)
	}
	p.signed(int64(rec.TTL))
	p.signed(int64(rec.Every))
	p.signed(rec.Terms)
	// The checkpoint is no word: each one would stay among the record's words.
	p.number(uint64(len(rec.Checkpoint)))
	p.to = append(p.to, rec.Checkpoint...)
	p.number(uint64(len(rec.Guards)))
	for _, g := range rec.Guards {
		p.word(g)
	}
	to = append(to, packedV3)
	to = binary.AppendUvarint(to, uint64(len(k.past.words)))
	for _, w := range k.past.words {
		to = binary.AppendUvarint(to, uint64(len(w)))
		to = append(to, w...)
	}
	to = append(to, p.to...)
	to = binary.AppendUvarint(to, uint64(k.past.count))
	to = append(to, k.past.terms...)
	return binary.LittleEndian.AppendUint32(to, checksum(rec.Key, to[start:])), nil
}

// add appends a transfer, and drops the oldest if there are too many. A packed
// transfer is one byte with its length, its grant, and its other fields.
func (p *past) add(t *tenure.Term) error {
	raw, err := rawGrant(t.Grant)
	if err != nil {
		return err
	}
	var room [64]byte
	w := packer{to: room[:0], words: &p.words}
	w.time(t.Acquired, 0)
	at := t.Acquired.UnixMicro()
	w.signed(int64(t.Token) - at)
	w.time(t.Finished, at)
	for _, word := range []string{
		t.Owner, t.Instance, string(t.State), string(t.Cause), string(t.Ended), t.Actor, t.Note,
	} {
		w.word(word)
	}
	terms := p.terms
	if p.count == longestPast {
		terms = terms[1+int(terms[0]):]
		p.count--
	}
	// If terms is part of the bytes that were read, or is full, copy it and
	// leave room for as much again.
	if more := 17 + len(w.to); !p.own || cap(terms)-len(terms) < more {
		terms, p.own = append(make([]byte, 0, 2*(len(terms)+more)), terms...), true
	}
	terms = append(append(terms, byte(16+len(w.to))), raw[:]...)
	terms = append(terms, w.to...)
	p.terms = terms
	p.count++
	return nil
}

// has reports whether a grant is among these transfers.
func (p *past) has(raw [16]byte) bool {
	for at := 0; at < len(p.terms); at += 1 + int(p.terms[at]) {
		if [16]byte(p.terms[at+1:at+17]) == raw {
			return true
		}
	}
	return false
}

// rawGrant decodes a grant from hexadecimal digits.
func rawGrant(g fence.Grant) (raw [16]byte, err error) {
	if len(g) != 32 {
		return raw, fmt.Errorf("grant %q is not one", g)
	}
	_, err = hex.Decode(raw[:], []byte(g))
	return raw, err
}

// packer appends fields to a buffer, and new words to words.
type packer struct {
	to    []byte
	words *[]string
}

func (p *packer) number(n uint64) { p.to = binary.AppendUvarint(p.to, n) }
func (p *packer) signed(n int64)  { p.to = binary.AppendVarint(p.to, n) }

// time writes the difference to another time in microseconds. 0 means no time,
// so a difference is zigzag-encoded, and one is added.
func (p *packer) time(t time.Time, after int64) {
	if t.IsZero() {
		p.number(0)
		return
	}
	n := t.UnixMicro() - after
	p.number((uint64(n)<<1 ^ uint64(n>>63)) + 1)
}

func (p *packer) word(s string) {
	words := *p.words
	for i := len(words) - 1; i >= 0; i-- { // most words are among the last
		if words[i] == s {
			p.number(uint64(len(known) + i))
			return
		}
	}
	for i, w := range known {
		if w == s {
			p.number(uint64(i))
			return
		}
	}
	p.number(uint64(len(known) + len(words)))
	words = append(words[:len(words):len(words)], s) // copies it: a copy of kept may share the array
	*p.words = words
}
