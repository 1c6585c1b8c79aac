package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep objects and lists may be nested in a message.
const maxDepth = 1000

// A value of JSON is nil, a bool, a string, a json.Number, a list or an object.
// A number keeps the form in which it was written.
type (
	list   []any
	object []member
	member struct {
		name  string
		value any
	}
)

// get returns a member's value. The result ok is false if there is no such
// member.
func (o object) get(name string) (value any, ok bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// text returns a member's value if it is a string, or "".
func (o object) text(name string) string {
	value, _ := o.get(name)
	s, _ := value.(string)
	return s
}

// object returns a member's value if it is an object, or nil.
func (o object) object(name string) object {
	value, _ := o.get(name)
	inner, _ := value.(object)
	return inner
}

// with returns the object with a member's value replaced, or added at the end.
func (o object) with(name string, value any) object {
	o = slices.Clone(o)
	for i := range o {
		if o[i].name == name {
			o[i].value = value
			return o
		}
	}
	return append(o, member{name, value})
}

// without returns the object without the members that drop names.
func (o object) without(drop func(name string) bool) object {
	return slices.DeleteFunc(slices.Clone(o), func(m member) bool { return drop(m.name) })
}

// parse reads one value. It is stricter than encoding/json, so that no other
// parser can read the text differently: it refuses invalid UTF-8, half
// surrogate pairs, and objects with two members of one name. A value with half
// a surrogate pair is returned with the error, so that its sender can be told.
func parse(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is not valid UTF-8")
	}
	p := json.NewDecoder(bytes.NewReader(text))
	p.UseNumber()
	value, err := parseValue(p, 1)
	if err != nil {
		return nil, err
	}
	if _, err := p.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the message on its line")
	}
	return value, checkEscapes(text)
}

// countValues returns how many values and names of members a text has, or more.
// It is quick, and it allocates nothing: a parsed value takes many times the
// memory of its text.
func countValues(text []byte) int {
	count, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':' || c == '[' || c == '{'):
			count++
		}
	}
	return count
}

// next returns the next token of a value that has not ended.
func next(p *json.Decoder) (json.Token, error) {
	token, err := p.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	return token, nil
}

func parseValue(p *json.Decoder, depth int) (any, error) {
	token, err := next(p)
	if err != nil {
		return nil, err
	}
	if _, opens := token.(json.Delim); opens && depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	switch token {
	case json.Delim('{'):
		return parseObject(p, depth)
	case json.Delim('['):
		l := list{}
		for p.More() {
			value, err := parseValue(p, depth+1)
			if err != nil {
				return nil, err
			}
			l = append(l, value)
		}
		_, err := next(p)
		return l, err
	}
	return token, nil // the decoder has refused a stray delimiter
}

func parseObject(p *json.Decoder, depth int) (any, error) {
	o, names := object{}, map[string]bool{}
	for p.More() {
		name, err := next(p)
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // the decoder has refused other tokens here
		if names[m.name] {
			return nil, fmt.Errorf("the member %q is there twice", m.name)
		}
		names[m.name] = true
		if m.value, err = parseValue(p, depth+1); err != nil {
			return nil, err
		}
		o = append(o, m)
	}
	_, err := next(p)
	return o, err
}

// errHalfPair is the error for half a surrogate pair in a value that can be
// read, with U+FFFD in its place.
var errHalfPair = errors.New("an escape in it is one half of a surrogate pair")

// checkEscapes refuses escapes of one half of a surrogate pair. Parsers make
// different text of it.
func checkEscapes(text []byte) error {
	for i := bytes.IndexByte(text, '\\'); i >= 0 && i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch half := surrogate(text[i:]); {
		case half == 0:
			i++ // the escaped character, which may be a backslash
		case half == 'h' && surrogate(text[i+6:]) == 'l':
			i += 11
		default:
			return errHalfPair
		}
	}
	return nil
}

// surrogate returns 'h' if the text begins with the escape of a high surrogate,
// 'l' if it is a low one, and 0 otherwise.
func surrogate(text []byte) byte {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' || text[2] != 'd' && text[2] != 'D' {
		return 0
	}
	switch c := text[3]; {
	case strings.IndexByte("89abAB", c) >= 0:
		return 'h'
	case strings.IndexByte("cdefCDEF", c) >= 0:
		return 'l'
	}
	return 0
}

// encode writes a value as one line without spaces.
func encode(value any) []byte {
	var b bytes.Buffer
	strs := json.NewEncoder(&b)
	strs.SetEscapeHTML(false)
	var write func(any)
	write = func(value any) {
		switch v := value.(type) {
		case object:
			b.WriteByte('{')
			for i, m := range v {
				if i > 0 {
					b.WriteByte(',')
				}
				write(m.name)
				b.WriteByte(':')
				write(m.value)
			}
			b.WriteByte('}')
		case list:
			b.WriteByte('[')
			for i, each := range v {
				if i > 0 {
					b.WriteByte(',')
				}
				write(each)
			}
			b.WriteByte(']')
		case json.Number:
			b.WriteString(string(v))
		default: // a string, a bool or null
			_ = strs.Encode(v)      // cannot fail
			b.Truncate(b.Len() - 1) // it ends with a newline
		}
	}
	write(value)
	return b.Bytes()
}
