package redis

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// The words that apply.lua writes as one byte, by their numbers there.
var (
	states = [...]tenure.State{1: tenure.Free, tenure.Held, tenure.Reserved}
	causes = [...]tenure.Cause{
		1: tenure.First, tenure.Released, tenure.Expired, tenure.Handoff,
		tenure.Operator, tenure.Cancelled, tenure.Recovery,
	}
	ends = [...]tenure.End{
		"", tenure.EndReleased, tenure.EndFailed, tenure.EndExpired, tenure.EndTakenOver, tenure.EndSuperseded,
	}
)

// The verbs of apply.lua. The last two do not change the record: they take the
// store out of the queue of waiters, and put it in.
const (
	acquire byte = iota + 1
	renew
	report
	checkpoint
	release
	takeover
	reserve
	revoke
	leave
	enter
)

const (
	recordSize = 130 // without its texts
	grantSize  = 16
	withMore   = 2 // in the flag of a request: above, every and hold follow
)

// packing is a batch of requests in the format that apply.lua reads.
type packing []byte

// settings writes the beginning of a batch.
func (p *packing) settings(retention time.Duration, now int64, flags byte, id string) {
	p.number(retention.Microseconds())
	p.number(now)
	*p = append(*p, flags)
	*p = append(*p, id...)
}

func (p *packing) number(n int64) {
	*p = binary.LittleEndian.AppendUint64(*p, math.Float64bits(float64(n))) // all are below 2^53
}

func (p *packing) length(n int) { *p = binary.LittleEndian.AppendUint16(*p, uint16(n)) }

func (p *packing) text(text string) {
	p.length(len(text))
	*p = append(*p, text...)
}

// request writes a request. It sends only the fingerprint of the secret.
// watching says of an acquire that the store watches the key.
func (p *packing) request(req *tenure.Request, watching bool) {
	switch req.Verb {
	case tenure.Renew:
		p.short(renew, req, req.Resume, req.TTL, "")
	case tenure.Report:
		p.short(report, req, req.Resume, 0, req.Progress)
	case tenure.Checkpoint:
		var state packing
		state.text(req.Checkpoint)
		p.short(checkpoint, req, req.Resume, 0, string(state))
	case tenure.Release:
		p.short(release, req, req.Failed, 0, "")
	case tenure.Acquire:
		p.long(acquire, req, watching, req.TTL, req.Owner, req.Instance)
	case tenure.Takeover:
		p.long(takeover, req, false, req.TTL, req.Owner, req.Instance)
	case tenure.Reserve: // for any instance of the owner
		p.long(reserve, req, false, req.TTL, req.Owner, "")
	case tenure.Revoke: // the key has no owner after it
		p.long(revoke, req, false, 0, "", "")
	}
}

// short writes a request about an existing grant.
func (p *packing) short(verb byte, req *tenure.Request, flag bool, ttl time.Duration, rest string) {
	p.begin(verb, flag, req.Secret, ttl)
	p.length(0)
	p.length(len(rest))
	*p = append(*p, rest...)
}

// long writes a request for a new grant.
func (p *packing) long(verb byte, req *tenure.Request, flag bool, ttl time.Duration, owner, instance string) {
	guards := strings.Join(req.Guards, "\t") // a guard contains no tab
	every, hold, actor, note := req.Every, req.HoldFor, "", ""
	if verb != acquire {
		every, hold, actor, note = 0, 0, req.Actor, req.Note
	}
	at := len(*p) + 1
	p.begin(verb, flag, req.Secret, ttl)
	p.length(8 + len(owner) + len(instance) + len(actor) + len(note))
	p.length(len(guards))
	if req.Above > 0 || every > 0 || hold > 0 {
		(*p)[at] |= withMore
		p.number(int64(req.Above))
		p.number(every.Microseconds())
		p.number(hold.Microseconds())
	}
	p.text(owner)
	p.text(instance)
	p.text(actor)
	p.text(note)
	*p = append(*p, guards...)
}

func (p *packing) begin(verb byte, flag bool, secret tenure.Secret, ttl time.Duration) {
	*p = append(*p, verb, 0)
	if flag {
		(*p)[len(*p)-1] = 1
	}
	grant := secret.Grant()
	*p, _ = hex.AppendDecode(*p, []byte(grant)) // it has nothing but hex digits
	p.number(ttl.Microseconds())
}

// inQueue writes a request with the verb enter or leave.
func (p *packing) inQueue(verb byte) {
	*p = append(*p, verb)
	*p = append(*p, make([]byte, requestSize-1)...)
}

// requestSize is the size of a request without its texts.
const requestSize = 2 + grantSize + 8 + 2*2

// packed reads the formats that apply.lua writes. After the first failure, err
// is set and all further values are zero.
type packed struct {
	rest string
	err  error
}

var (
	errCutOff  = errors.New("it is cut off")
	errForeign = errors.New("it was not written by this program")
)

func (p *packed) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.rest = ""
}

// take takes n bytes. It fails if there are fewer.
func (p *packed) take(n int) string {
	if n < 0 || len(p.rest) < n {
		p.fail(errCutOff)
		return ""
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *packed) byte() byte {
	if b := p.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (p *packed) length() int {
	if b := p.take(2); b != "" {
		return lengthAt(b, 0)
	}
	return 0
}

func lengthAt(text string, at int) int { return int(text[at]) | int(text[at+1])<<8 }

// count takes a whole number of four bytes.
func (p *packed) count() int64 { return int64(p.length()) | int64(p.length())<<16 }

func (p *packed) number() int64 { return p.numberUpTo(1 << 53) }

// far bounds "matters", which may lie 200 years after the last time of the law.
// It is FAR of apply.lua.
const far = 1 << 56

// numberUpTo takes a number, and fails if it is further from 0 than most.
func (p *packed) numberUpTo(most float64) int64 {
	b := p.take(8)
	if b == "" {
		return 0
	}
	f := math.Float64frombits(uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56)
	if !(f >= -most && f <= most) {
		p.fail(errForeign)
		return 0
	}
	return int64(f)
}

func (p *packed) duration() time.Duration { return time.Duration(p.number()) * time.Microsecond }

// time takes a time. 0 means none.
func (p *packed) time() time.Time {
	n := p.number()
	if n == 0 {
		return time.Time{}
	}
	return moment(n)
}

// moment converts a time of the scripts.
func moment(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// text takes a text with its length before it.
func (p *packed) text() string { return p.take(p.length()) }

func (p *packed) grant() fence.Grant {
	var digits [2 * grantSize]byte
	for i, b := range []byte(p.take(grantSize)) {
		digits[2*i], digits[2*i+1] = hexDigits[b>>4], hexDigits[b&15]
	}
	return fence.Grant(digits[:])
}

const hexDigits = "0123456789abcdef"

// nameOf takes a byte and returns the word that it stands for.
func nameOf[T ~string](p *packed, names []T) T {
	n := int(p.byte())
	if n >= len(names) {
		p.fail(errForeign)
		return ""
	}
	return names[n]
}

// term takes the fields that a record and a past term have in common, and the
// lengths of their texts.
func (p *packed) term() (t tenure.Term, every time.Duration, terms int64, words, guards int) {
	t.Cause = nameOf(p, causes[:])
	every, t.Token, t.Acquired, terms = p.duration(), fence.Token(p.number()), p.time(), p.count()
	p.count() // transfers
	t.Grant = p.grant()
	return t, every, terms, p.length(), p.length()
}

// words takes owner, instance, actor and note. It copies them: otherwise they
// would keep the whole reply in memory.
func (p *packed) words(size int) (owner, instance, actor, note string) {
	w := packed{rest: strings.Clone(p.take(size))}
	owner, instance, actor, note = w.text(), w.text(), w.text(), w.text()
	if w.err != nil || w.rest != "" {
		p.fail(errForeign)
	}
	return owner, instance, actor, note
}

// pastTerm takes a term before the newest.
func (p *packed) pastTerm() tenure.Term {
	ended, began, finished := nameOf(p, ends[:]), nameOf(p, states[:]), p.time()
	t, _, _, words, _ := p.term()
	t.State, t.Ended, t.Finished = began, ended, finished
	t.Owner, t.Instance, t.Actor, t.Note = p.words(words)
	return t
}

// record takes the record of a key, without its history. It returns a zero
// record if there is none. The texts follow the record, unless asked is the
// request that has just set them, and then the checkpoint. A damaged record is
// taken as a whole, too, because the next answer begins after it. The script
// has checked its lengths.
func (p *packed) record(key string, asked *tenure.Request) (tenure.Record, error) {
	if p.rest != "" && p.rest[0] == 0 {
		p.take(1)
		return tenure.Record{}, nil
	}
	r := packed{rest: p.take(recordSize)}
	texts := ""
	if asked == nil && p.err == nil {
		texts = p.take(lengthAt(r.rest, 75) + lengthAt(r.rest, 126) + lengthAt(r.rest, 128))
	}
	saved := strings.Clone(p.text())
	rec := tenure.Record{Key: key, Checkpoint: saved, State: nameOf(&r, states[:]), Ended: nameOf(&r, ends[:])}
	r.take(1 + 8) // waited, expires
	rec.Deadline, rec.Renewed, rec.TTL = r.time(), r.time(), r.duration()
	r.numberUpTo(far) // matters
	rec.Succeeded, rec.Grid, rec.HoldUntil, rec.ProgressAt = r.time(), r.time(), r.time(), r.time()
	progress := r.length()
	t, every, terms, words, guards := r.term()
	rec.Cause, rec.Every, rec.Token = t.Cause, every, t.Token
	rec.Acquired, rec.Terms, rec.Grant = t.Acquired, terms, t.Grant
	if asked != nil {
		rec.Owner, rec.Instance, rec.Guards = asked.Owner, asked.Instance, slices.Clone(asked.Guards)
	} else {
		r.rest = texts
		rec.Owner, rec.Instance, rec.Actor, rec.Note = r.words(words)
		if guards > 0 {
			rec.Guards = strings.Split(strings.Clone(r.take(guards)), "\t")
		}
		rec.Progress = strings.Clone(r.take(progress))
	}
	if err := cmp.Or(p.err, r.err); err != nil {
		return tenure.Record{}, err
	}
	return rec, nil
}

// awaited reports whether the next record says that stores may wait for its
// key. It takes nothing.
func (p *packed) awaited() bool {
	return len(p.rest) > waitedAt && p.rest[0] != 0 && p.rest[waitedAt] == 1
}

// waitedAt is the offset of the byte "waited" in a record, counted from 0.
const waitedAt = 2
