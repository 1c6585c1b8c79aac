package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// packed reads the part of MessagePack that the scripts write: arrays of texts and whole numbers. It remembers the first thing that is not as it should be, and then reads
// nothing more.
type packed struct {
	rest string
	err  error
}

var errCutOff = errors.New("it is cut off")

func (p *packed) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.rest = ""
}

// take takes so many bytes; nothing if there are not that many.
func (p *packed) take(n int) string {
	if len(p.rest) < n {
		p.fail(errCutOff)
		return ""
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// unsigned takes a number of so many bytes, the highest first.
func (p *packed) unsigned(bytes int) uint64 {
	var b [8]byte
	copy(b[8-bytes:], p.take(bytes))
	return binary.BigEndian.Uint64(b[:])
}

// tag takes the byte that a value begins with.
func (p *packed) tag() byte {
	if tag := p.take(1); tag != "" {
		return tag[0]
	}
	return 0xc1 // never used
}

// array makes sure that an array of so many values follows.
func (p *packed) array(n int) {
	size := -1
	switch tag := p.tag(); {
	case tag&0xf0 == 0x90:
		size = int(tag & 0x0f)
	case tag == 0xdc:
		size = int(p.unsigned(2))
	}
	if size != n {
		p.fail(fmt.Errorf("it is not a list of %d", n))
	}
}

func (p *packed) text() string {
	switch tag := p.tag(); {
	case tag&0xe0 == 0xa0:
		return p.take(int(tag & 0x1f))
	case tag == 0xd9:
		return p.take(int(p.unsigned(1)))
	case tag == 0xda:
		return p.take(int(p.unsigned(2)))
	case tag == 0xdb:
		return p.take(int(p.unsigned(4)))
	}
	p.fail(errors.New("a text is missing"))
	return ""
}

func (p *packed) number() int64 {
	switch tag := p.tag(); {
	case tag < 0x80:
		return int64(tag)
	case tag >= 0xe0:
		return int64(int8(tag))
	case tag >= 0xcc && tag <= 0xcf:
		return int64(p.unsigned(1 << (tag - 0xcc)))
	case tag == 0xd0:
		return int64(int8(p.unsigned(1)))
	case tag == 0xd1:
		return int64(int16(p.unsigned(2)))
	case tag == 0xd2:
		return int64(int32(p.unsigned(4)))
	case tag == 0xd3:
		return int64(p.unsigned(8))
	}
	p.fail(errors.New("a number is missing"))
	return 0
}

func (p *packed) duration() time.Duration { return time.Duration(p.number()) * time.Microsecond }

// time is a moment; 0 is none.
func (p *packed) time() time.Time {
	n := p.number()
	if n == 0 {
		return time.Time{}
	}
	return moment(n)
}

// moment is the scripts' time.
func moment(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// packing writes what packed reads.
type packing []byte

func (p *packing) array(n int) {
	if n < 16 {
		*p = append(*p, 0x90|byte(n))
		return
	}
	*p = append(*p, 0xdc, byte(n>>8), byte(n))
}

func (p *packing) text(text string) {
	switch n := len(text); {
	case n < 32:
		*p = append(*p, 0xa0|byte(n))
	case n < 1<<8:
		*p = append(*p, 0xd9, byte(n))
	case n < 1<<16:
		*p = append(*p, 0xda, byte(n>>8), byte(n))
	default:
		*p = binary.BigEndian.AppendUint32(append(*p, 0xdb), uint32(n))
	}
	*p = append(*p, text...)
}

// number writes a number; one below 0, which means nothing anywhere, as 0.
func (p *packing) number(n int64) {
	if n < 128 {
		*p = append(*p, byte(max(n, 0)))
		return
	}
	*p = binary.BigEndian.AppendUint64(append(*p, 0xcf), uint64(n))
}

func (p *packing) flag(b bool) {
	if b {
		*p = append(*p, 1)
		return
	}
	*p = append(*p, 0)
}

func (p *packing) duration(d time.Duration) { p.number(d.Microseconds()) }

// request writes a request as apply.lua takes it. Of the secret only its fingerprint is sent.
func (p *packing) request(req *tenure.Request) {
	begin := func(words int) {
		p.array(2 + words)
		p.text(string(req.Verb))
		p.text(string(req.Secret.Grant()))
	}
	switch req.Verb {
	case tenure.Acquire:
		begin(7)
		p.duration(req.TTL)
		p.number(int64(req.Above))
		p.duration(req.Every)
		p.duration(req.HoldFor)
		p.text(req.Owner)
		p.text(req.Instance)
		p.guards(req)
	case tenure.Renew:
		begin(2)
		p.flag(req.Resume)
		p.duration(req.TTL)
	case tenure.Report:
		begin(2)
		p.flag(req.Resume)
		p.text(req.Progress)
	case tenure.Release:
		begin(1)
		p.flag(req.Failed)
	default:
		begin(7)
		p.duration(req.TTL)
		p.number(int64(req.Above))
		p.text(req.Owner)
		p.text(req.Instance)
		p.guards(req)
		p.text(req.Actor)
		p.text(req.Note)
	}
}

// guards joins targets by a character that none of them can have.
func (p *packing) guards(req *tenure.Request) { p.text(strings.Join(req.Guards, "\t")) }
