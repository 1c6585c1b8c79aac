package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
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
