package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
)

// reader reads one JSON document. Its methods read the next value, and know
// where it is.
type reader struct {
	dec    *json.Decoder
	strict bool // refuses members that are not known
	path   []string
}

// read reads a document with the function for its top value.
func read(data []byte, strict bool, value func(r *reader) error) error {
	r := &reader{strict: strict}
	if !utf8.Valid(data) {
		return r.bad("it is not valid UTF-8")
	}
	// The tokens below would forgive some mistakes. This also finds data behind
	// the value.
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return r.bad("it is no JSON document: %s at byte %d", syntax.Error(), syntax.Offset)
		}
		return r.bad("it is no JSON document: %s", err.Error())
	}
	if at, lone := loneSurrogate(data); lone {
		return r.bad("half of a surrogate pair is escaped at byte %d", at)
	}
	r.dec = json.NewDecoder(bytes.NewReader(data))
	r.dec.UseNumber()
	return value(r)
}

// bad returns an error about the value that is read.
func (r *reader) bad(format string, args ...any) error {
	where := strings.Join(r.path, "")
	if where == "" {
		where = "body"
	}
	return fmt.Errorf("%w %s: %s", fence.ErrInvalid, strings.TrimPrefix(where, "."), fmt.Sprintf(format, args...))
}

// object reads an object. It calls member for each member, to read its value.
// If member reports false, the member is not known.
func (r *reader) object(member func(name string) (known bool, err error)) error {
	if t, err := r.dec.Token(); err != nil || t != json.Delim('{') {
		return r.bad("it must be an object")
	}
	seen := map[string]bool{}
	for r.dec.More() {
		t, err := r.dec.Token()
		if err != nil {
			return r.bad("%s", err.Error())
		}
		name := t.(string) // the decoder gives no other names
		shown := name
		if len(shown) > 64 {
			shown = shown[:64] + "…"
		}
		r.path = append(r.path, "."+strconv.Quote(shown))
		if plain(name) {
			r.path[len(r.path)-1] = "." + name
		}
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
			var skipped json.RawMessage
			if err := r.dec.Decode(&skipped); err != nil {
				return r.bad("%s", err.Error())
			}
		}
		r.path = r.path[:len(r.path)-1]
	}
	_, err := r.dec.Token()
	return r.ended(err)
}

// plain reports whether a name needs no quotes in a message.
func plain(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// list reads an array of at most so many elements. It calls element for each,
// to read it.
func (r *reader) list(most int, element func() error) error {
	if t, err := r.dec.Token(); err != nil || t != json.Delim('[') {
		return r.bad("it must be a list")
	}
	for n := 0; r.dec.More(); n++ {
		if n == most {
			return r.bad("it has more than %d elements", most)
		}
		r.path = append(r.path, "["+strconv.Itoa(n)+"]")
		if err := element(); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
	}
	_, err := r.dec.Token()
	return r.ended(err)
}

// ended is the error of reading the end of an object or list. The document is
// valid, so there is none.
func (r *reader) ended(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		return r.bad("%s", err.Error())
	}
	return nil
}

// text reads a string.
func text[T ~string](r *reader, into *T) error {
	t, err := r.dec.Token()
	s, ok := t.(string)
	if err != nil || !ok {
		return r.bad("it must be a string")
	}
	*into = T(s)
	return nil
}

// whole reads a whole number.
func whole[T ~int | ~int64](r *reader, into *T) error {
	t, err := r.dec.Token()
	number, ok := t.(json.Number)
	if err != nil || !ok {
		return r.bad("it must be a number")
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil {
		return r.bad("it must be a whole number of at most 64 bits, written with digits alone")
	}
	*into = T(n)
	return nil
}

// count reads a whole number that is not negative.
func (r *reader) count(into *uint64) error {
	t, err := r.dec.Token()
	number, ok := t.(json.Number)
	if err != nil || !ok {
		return r.bad("it must be a number")
	}
	if *into, err = strconv.ParseUint(number.String(), 10, 64); err != nil {
		return r.bad("it must be a whole number of at most 64 bits that is not negative")
	}
	return nil
}

func (r *reader) truth(into *bool) error {
	t, err := r.dec.Token()
	b, ok := t.(bool)
	if err != nil || !ok {
		return r.bad("it must be true or false")
	}
	*into = b
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
