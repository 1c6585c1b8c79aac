package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// anything reads a value of any kind. Every other unknown member is skipped.
func anything(r *reader) (v any, err error) {
	switch r.next() {
	case '{':
		all := map[string]any{}
		err = r.object(func(name string) (bool, error) {
			if len(name)%2 == 1 {
				return false, nil
			}
			all[name], err = anything(r)
			return true, err
		})
		return all, err
	case '[':
		all := []any{}
		err = r.list(1<<20, func() error {
			one, err := anything(r)
			all = append(all, one)
			return err
		})
		return all, err
	case '"':
		var s string
		err = text(r, &s)
		return s, err
	case 't', 'f':
		var b bool
		err = r.truth(&b)
		return b, err
	case 'n':
		r.skip()
		return nil, nil
	}
	digits, err := r.number()
	return json.Number(digits), err
}

// without drops the members that anything skips.
func without(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if v[name] = without(member); len(name)%2 == 1 {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = without(v[i])
		}
	}
	return v
}

// FuzzReader: the reader reads what encoding/json reads. It refuses members
// that are given twice, and half characters.
func FuzzReader(f *testing.F) {
	for _, doc := range []string{
		`{}`, ` [ ] `, `"a"`, `-1.5e+3`, `true`, `null`, `{"a":1,"bb":[1,"2",{"cc":null}],"ddd":{"e":["]}",{}]},"ff":"\"\\\u00e9\ud83d\ude00/"}`,
		"{\r\n\t\"aa\" : [ false , true ] , \"b\" : \"\\\\\" }", `{"a":1,"a":2}`, `{"aa":1,"\u0061a":2}`, `"\ud800"`, `[1,]`, `{"a"}`, `01`, "\"\x00\"", `{} {}`, "\xff",
		`{"x":"\\","yy":"\\\""}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var got, want any
		err := read(doc, false, func(r *reader) (err error) {
			if got, err = anything(r); err == nil && (r.next() != 0 || len(r.path) != 0) {
				err = errors.New("it stops before the end")
			}
			return err
		})
		dec := json.NewDecoder(bytes.NewReader(doc))
		dec.UseNumber()
		wantErr := dec.Decode(&want)
		if valid := json.Valid(doc) && wantErr == nil; !valid {
			if err == nil {
				t.Errorf("%q is read as %v", doc, got)
			}
			return
		}
		if _, half := loneSurrogate(doc); err != nil && !half && !bytes.Contains([]byte(err.Error()), []byte("given twice")) &&
			!bytes.Contains([]byte(err.Error()), []byte("UTF-8")) {
			t.Errorf("%q: %v", doc, err)
		}
		if want = without(want); err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %v, not %v", doc, got, want)
		}
	})
}
