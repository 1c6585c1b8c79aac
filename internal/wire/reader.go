package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
)

// reader reads one JSON document. Its methods read the next value, and know
// where it is. The document is known to be valid, so they need not look for
// mistakes in it. A json.Decoder would look again, and cost more than all else
// in a call of the server.
type reader struct {
	doc    []byte
	at     int  // in doc
	strict bool // refuses members that are not known
	path   []step
}

// step is a part of the way to a value: a member, or an element of a list.
type step struct {
	name string
	n    int // of an element; -1 for a member
}

// read reads a document with the function for its top value.
func read(data []byte, strict bool, value func(r *reader) error) error {
	r := &reader{doc: data, strict: strict}
	if !utf8.Valid(data) {
		return r.bad("it is not valid UTF-8")
	}
	if !json.Valid(data) {
		var whole json.RawMessage
		err := json.Unmarshal(data, &whole)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return r.bad("it is no JSON document: %s at byte %d", syntax.Error(), syntax.Offset)
		}
		return r.bad("it is no JSON document: %v", err)
	}
	if at, lone := loneSurrogate(data); lone {
		return r.bad("half of a surrogate pair is escaped at byte %d", at)
	}
	return value(r)
}

// bad returns an error about the value that is read.
func (r *reader) bad(format string, args ...any) error {
	where := ""
	for _, s := range r.path {
		switch {
		case s.n >= 0:
			where += "[" + strconv.Itoa(s.n) + "]"
		case plain(s.name):
			where += "." + s.name
		case len(s.name) > 64:
			where += "." + strconv.Quote(s.name[:64]+"…")
		default:
			where += "." + strconv.Quote(s.name)
		}
	}
	if where == "" {
		where = "body"
	}
	return fmt.Errorf("%w %s: %s", fence.ErrInvalid, strings.TrimPrefix(where, "."), fmt.Sprintf(format, args...))
}

// next goes to the next value, name or end, and returns its first byte. In a
// valid document the commas and colons before it say nothing.
func (r *reader) next() byte {
	for r.at < len(r.doc) {
		switch c := r.doc[r.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// raw reads the string, number or word that is next.
func (r *reader) raw() []byte {
	begin := r.at
	if r.doc[r.at] == '"' {
		for r.at++; r.doc[r.at] != '"'; r.at++ {
			if r.doc[r.at] == '\\' {
				r.at++
			}
		}
		r.at++
	} else {
		for r.at < len(r.doc) && strings.IndexByte(" \t\r\n,:]}", r.doc[r.at]) < 0 {
			r.at++
		}
	}
	return r.doc[begin:r.at]
}

// quoted reads the string that is next.
func (r *reader) quoted() (s string) {
	raw := r.raw()
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	_ = json.Unmarshal(raw, &s) // it is valid
	return s
}

// skip passes over the next value.
func (r *reader) skip() {
	for depth := 0; ; {
		switch r.next() {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		default:
			r.raw()
		}
		if depth == 0 {
			return
		}
	}
}

// object reads an object. It calls member for each member, to read its value.
// If member reports false, the member is not known.
func (r *reader) object(member func(name string) (known bool, err error)) error {
	if r.next() != '{' {
		return r.bad("it must be an object")
	}
	r.at++
	seen := map[string]bool{}
	for r.next() != '}' {
		name := r.quoted()
		r.path = append(r.path, step{name, -1})
		if seen[name] {
			return r.bad("it is given twice")
		}
		seen[name] = true
		known, err := member(name)
		switch {
		case err != nil:
			return err
		case !known && r.strict:
			return r.bad("there is no such member")
		case !known:
			r.skip()
		}
		r.path = r.path[:len(r.path)-1]
	}
	r.at++
	return nil
}

// plain reports whether a name needs no quotes in a message.
func plain(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// list reads an array of at most so many elements. It calls element for each,
// to read it.
func (r *reader) list(most int, element func() error) error {
	if r.next() != '[' {
		return r.bad("it must be a list")
	}
	r.at++
	for n := 0; r.next() != ']'; n++ {
		if n == most {
			return r.bad("it has more than %d elements", most)
		}
		r.path = append(r.path, step{n: n})
		if err := element(); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
	}
	r.at++
	return nil
}

// text reads a string.
func text[T ~string](r *reader, into *T) error {
	if r.next() != '"' {
		return r.bad("it must be a string")
	}
	*into = T(r.quoted())
	return nil
}

// number reads the digits of a number.
func (r *reader) number() (digits string, err error) {
	if c := r.next(); c != '-' && (c < '0' || c > '9') {
		return "", r.bad("it must be a number")
	}
	return string(r.raw()), nil
}

// whole reads a whole number.
func whole[T ~int | ~int64](r *reader, into *T) error {
	digits, err := r.number()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return r.bad("it must be a whole number of at most 64 bits, written with digits alone")
	}
	*into = T(n)
	return nil
}

// count reads a whole number that is not negative.
func (r *reader) count(into *uint64) error {
	digits, err := r.number()
	if err != nil {
		return err
	}
	if *into, err = strconv.ParseUint(digits, 10, 64); err != nil {
		return r.bad("it must be a whole number of at most 64 bits that is not negative")
	}
	return nil
}

func (r *reader) truth(into *bool) error {
	c := r.next()
	if c != 't' && c != 'f' {
		return r.bad("it must be true or false")
	}
	r.raw()
	*into = c == 't'
	return nil
}

func (r *reader) duration(into *time.Duration) error {
	var s string
	err := text(r, &s)
	if err != nil {
		return err
	}
	if *into, err = time.ParseDuration(s); err != nil {
		return r.bad("%.40q is no duration; write it as in 30s, 5m or 1h30m0s", s)
	}
	return nil
}

func (r *reader) moment(into *time.Time) error {
	var s string
	err := text(r, &s)
	if err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return r.bad("%.40q is no time; write it as in 2026-03-01T12:00:00.5Z", s)
	}
	*into = t.UTC()
	return nil
}

// bytes reads bytes in base64.
func (r *reader) bytes(into *string) error {
	var b []byte
	err := r.data(&b)
	*into = string(b)
	return err
}

// data reads bytes in base64, as bytes.
func (r *reader) data(into *[]byte) error {
	var s string
	if err := text(r, &s); err != nil {
		return err
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return r.bad("it is not in base64, with padding")
	}
	*into = b
	return nil
}

// texts reads a list of strings.
func (r *reader) texts(most int, into *[]string) error {
	return r.list(most, func() error {
		var s string
		err := text(r, &s)
		*into = append(*into, s)
		return err
	})
}

// loneSurrogate finds an escape like \ud800 that stands for no character. The
// decoder would replace it silently.
func loneSurrogate(data []byte) (at int, found bool) {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		high, ok := escaped(data[i:])
		if !ok {
			i++ // another escape, of two bytes
			continue
		}
		switch {
		case high >= 0xd800 && high < 0xdc00:
			if low, ok := escaped(data[i+6:]); !ok || low < 0xdc00 || low > 0xdfff {
				return i, true
			}
			i += 11
		case high >= 0xdc00 && high <= 0xdfff:
			return i, true
		default:
			i += 5
		}
	}
	return 0, false
}

// escaped returns the code of an escape like \u00e9 at the beginning of data.
func escaped(data []byte) (code uint64, ok bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	code, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return code, err == nil
}
