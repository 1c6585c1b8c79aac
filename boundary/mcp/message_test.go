package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// toolCall returns a tools/call with these params, as a line.
func toolCall(params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
}

// TestTricksThatTwoParsersReadDifferentlyAreRefused: the server behind the
// proxy has another parser. A message that it could read differently would slip
// past the rules.
func TestTricksThatTwoParsersReadDifferentlyAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a batch":                        {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "batches"},
		"an empty batch":                 {`[]`, "batches"},
		"no message":                     {`"ping"`, "batches"},
		"two messages":                   {`{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, "something follows"},
		"a method in another case":       {`{"jsonrpc":"2.0","id":1,"Method":"ping"}`, `must be written "method"`},
		"two methods in two cases":       {`{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call"}`, "differ only in case"},
		"two methods":                    {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, "twice"},
		"a method with an escape":        {`{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/call"}`, "twice"},
		"two ids":                        {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, "twice"},
		"params with a long s":           {`{"jsonrpc":"2.0","id":1,"method":"tools/call","paramſ":{}}`, `must be written "params"`},
		"an unknown member":              {`{"jsonrpc":"2.0","id":1,"method":"ping","extra":1}`, "no member"},
		"a tool's name in another case":  {toolCall(`{"Name":"write_file"}`), `must be written "name"`},
		"a tool's name in two cases":     {toolCall(`{"name":"read_file","NAME":"write_file"}`), "differ only in case"},
		"two names":                      {toolCall(`{"name":"read_file","name":"write_file"}`), "twice"},
		"a name with an escape":          {toolCall(`{"name":"read_file","n\u0061me":"write_file"}`), "twice"},
		"arguments in another case":      {toolCall(`{"name":"a","Arguments":{}}`), `must be written "arguments"`},
		"_meta in another case":          {toolCall(`{"name":"a","_Meta":{}}`), `must be written "_meta"`},
		"a task in another case":         {toolCall(`{"name":"a","TasK":{}}`), `must be written "task"`},
		"an argument twice":              {toolCall(`{"name":"a","arguments":{"path":"x","path":"y"}}`), "twice"},
		"an argument twice, deep inside": {toolCall(`{"name":"a","arguments":{"a":[{"b":1,"b":2}]}}`), "twice"},
		"a null id":                      {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "its id"},
		"a fraction as an id":            {`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, "its id"},
		"an exponent as an id":           {`{"jsonrpc":"2.0","id":1e0,"method":"ping"}`, "its id"},
		"minus zero as an id":            {`{"jsonrpc":"2.0","id":-0,"method":"ping"}`, "its id"},
		"an object as an id":             {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "its id"},
		"another version":                {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, "jsonrpc"},
		"no version":                     {`{"id":1,"method":"ping"}`, "jsonrpc"},
		"an empty method":                {`{"jsonrpc":"2.0","id":1,"method":""}`, "not a name"},
		"a number as a method":           {`{"jsonrpc":"2.0","id":1,"method":7}`, "not a name"},
		"params by position":             {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["write_file"]}`, "no object"},
		"null params":                    {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`, "no object"},
		"a call that is a response":      {`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, "both"},
		"a response that is two":         {`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, "no method"},
		"a response that is none":        {`{"jsonrpc":"2.0","id":1}`, "no method"},
		"a response without an id":       {`{"jsonrpc":"2.0","result":{}}`, "no method"},
		"a response with params":         {`{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, "params"},
		"Latin-1":                        {toolCall("{\"name\":\"caf\xe9\"}"), "UTF-8"},
		"an overlong slash":              {toolCall("{\"name\":\"a\xc0\xaf\"}"), "UTF-8"},
		"half a rune at a string's end":  {toolCall("{\"name\":\"a\xe2\x82\",\"b\":\"\xac\"}"), "UTF-8"},
		"half a surrogate pair":          {toolCall(`{"name":"a\ud800"}`), "surrogate"},
		"the other half":                 {toolCall(`{"name":"a\udc00"}`), "surrogate"},
		"halves in the wrong order":      {toolCall(`{"name":"a\udc00\ud800"}`), "surrogate"},
		"a half before another escape":   {toolCall(`{"name":"a\uD83D\n"}`), "surrogate"},
		"a trailing comma":               {toolCall(`{"name":"a",}`), "not JSON"},
		"a comment":                      {toolCall(`{"name":"a"/**/}`), "not JSON"},
		"a single quote":                 {toolCall(`{'name':"a"}`), "not JSON"},
		"not a number":                   {toolCall(`{"n":NaN}`), "not JSON"},
		"a leading zero":                 {toolCall(`{"n":01}`), "not JSON"},
		"a raw newline in a string":      {toolCall("{\"name\":\"a\nb\"}"), "not JSON"},
		"a byte order mark":              {"\ufeff" + toolCall(`{}`), "not JSON"},
		"the end in the middle":          {`{"jsonrpc":"2.0","id":1`, "not JSON"},
		"too deep":                       {toolCall(strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth)), "deeper"},
	} {
		if m, err := decode([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want an error with %q", name, encode(m.body), err, c.want)
		}
	}
}

// TestMessagesKeepTheirMeaning: they are written anew, with ids and numbers as
// they were and nothing left out.
func TestMessagesKeepTheirMeaning(t *testing.T) {
	for text, want := range map[string]string{
		` { "jsonrpc" : "2.0", "id" : 1, "method" : "ping" } ` + "\r": `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		// Numbers keep every digit.
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`:              "",
		`{"jsonrpc":"2.0","id":"\u0061","method":"ping"}`:                      `{"jsonrpc":"2.0","id":"a","method":"ping"}`,
		toolCall(`{"n":[1.0,1e400,-0,123456789012345678901234567890,0.1000]}`): "",
		// Members keep their order, and unknown ones stay.
		toolCall(`{"z":1,"a":{"y":null,"b":true},"name":"x","Title":"T"}`):                     "",
		toolCall(`{"s":"<&>\u00e9\ud83d\ude00\\ud800\"\/"}`):                                   toolCall(`{"s":"<&>é😀\\ud800\"/"}`),
		`{"jsonrpc":"2.0","method":"notifications/x"}`:                                         "",
		`{"jsonrpc":"2.0","id":"x","result":{"a":[],"b":{}}}`:                                  "",
		`{"jsonrpc":"2.0","id":1,"result":null}`:                                               "",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}`:                                     "",
		toolCall(strings.Repeat(`{"a":`, maxDepth-2) + "{}" + strings.Repeat("}", maxDepth-2)): "",
	} {
		if want == "" {
			want = text
		}
		m, err := decode([]byte(text))
		if got := string(encode(m.body)); err != nil || got != want {
			t.Errorf("%.100s became %.100s, %v; want %.100s", text, got, err, want)
		}
	}
}

// TestLinesAreReadWhole: however their bytes come, also if a character is split
// between two reads.
func TestLinesAreReadWhole(t *testing.T) {
	long := toolCall(`{"s":"` + strings.Repeat("€", 1<<16) + `"}`)
	text := "\n \r\n" + toolCall(`{"s":"€"}`) + "\r\n" + long + "\n" + strings.Repeat("x", MaxFrame+2) + "\n" +
		toolCall(`{}`) + "\n" + toolCall(`{"cut":"off`)
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
		l := newLines(r)
		for _, want := range []string{toolCall(`{"s":"€"}`), long, "", toolCall(`{}`)} {
			line, err := l.next()
			if want == "" && !errors.Is(err, errTooLong) || want != "" && (err != nil || string(line) != want) {
				t.Fatalf("the line %.60q, %v; want %.60q", line, err, want)
			}
		}
		if line, err := l.next(); !errors.Is(err, io.EOF) {
			t.Errorf("what follows the last newline is %q, %v; want the end", line, err)
		}
	}
}

// FuzzDecode: a message that is let through means the same to encoding/json as
// to this package, before and after it is written anew.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		toolCall(`{"name":"write_file","arguments":{"path":"a","n":9007199254740993}}`),
		`{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"é\ud83d\ude00"}]}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"x"}`,
		`[{}]`, `{"a":1,"a":2}`, "{\"a\":\"\xe2\x82\"}", `{"a":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decode(text)
		if err != nil {
			return
		}
		line := encode(m.body)
		if bytes.ContainsAny(line, "\n\r") {
			t.Fatalf("%q is more than one line", line)
		}
		if !reflect.DeepEqual(standard(t, text), standard(t, line)) {
			t.Fatalf("%q became %q", text, line)
		}
		again, err := decode(line)
		if err != nil || again.id != m.id || again.method != m.method || !bytes.Equal(encode(again.body), line) {
			t.Fatalf("%q became %q, then %q, %v", text, line, encode(again.body), err)
		}
	})
}

// standard reads a text with encoding/json.
func standard(t *testing.T, text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q is let through, and is no JSON: %v", text, err)
	}
	return v
}
