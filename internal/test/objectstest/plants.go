package objectstest

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/tenure"
)

// plant is one object, for the name of a key's record.
type plant struct {
	what   string
	object func(s *seed, key string) Object
	newer  bool // a newer version of Croft may have written it
}

// plants are in the order in which they are planted, so that a failure always
// names the same one.
var plants = []plant{
	{what: "nothing", object: text("")},
	{what: "more than a record", object: text(strings.Repeat("x", 2*objects.MaxBody))},
	{what: "deep", object: text(strings.Repeat(`{"record":`, 20_000))},
	{what: "packed zeros", object: packed},
	{what: "packed, it says", object: func(*seed, string) Object {
		return Object{Data: []byte("plain"), Encoding: "gzip"}
	}},
	{what: "PACKED, it says", object: func(*seed, string) Object {
		return Object{Data: []byte("plain"), Encoding: "GZIP"}
	}},
	{what: "a time without end", object: text(
		`{"croft":1,"nonce":"x","dropped":{"at":"` + strings.Repeat("9", 10_000) + `"}}`,
	)},
	{what: "another's record", object: anothers},
	{what: "another's deletion", object: anothersDeletion},
	{what: "a token beyond all", object: altered(token(fence.MaxToken + 1))},
	{what: "a token below all", object: altered(token(-1))},
	{what: "an owner without end", object: altered(func(r *tenure.Record) { r.Owner = strings.Repeat("x", 10_000) })},
	{what: "a state without end", object: altered(func(r *tenure.Record) {
		r.State = tenure.State(strings.Repeat("x", 10_000))
	})},
	{what: "a cause without end", object: altered(func(r *tenure.Record) {
		r.Cause = tenure.Cause(strings.Repeat("x", 10_000))
		r.History[0].Cause = r.Cause
	})},
	{what: "guards without number", object: altered(func(r *tenure.Record) { r.Guards = make([]string, 10_000) })},
	{what: "terms without number", object: altered(func(r *tenure.Record) { r.History = make([]tenure.Term, 1000) })},
	{what: "something behind it", object: behind("{}")},
	{what: "a bracket behind it", object: behind("]")},
	{what: "a megabyte behind it", object: behind(strings.Repeat(" ", objects.MaxBody))},
	{what: "a newer format", object: text(`{"croft":2,"nonce":"x"}`), newer: true},
}

// seed is a held record. Plants are made from it.
type seed struct {
	tb   testing.TB
	key  string
	held tenure.Record
}

// record returns the body of the record, for another key and with a change.
func (s *seed) record(key string, change func(*tenure.Record)) []byte {
	s.tb.Helper()
	rec := s.held
	rec.Key, rec.History = key, slices.Clone(rec.History)
	change(&rec)
	data, _, err := objects.Write(rec)
	if err != nil {
		s.tb.Fatal(err)
	}
	return data
}

func text(data string) func(*seed, string) Object {
	return func(*seed, string) Object { return Object{Data: []byte(data)} }
}

func altered(change func(*tenure.Record)) func(*seed, string) Object {
	return func(s *seed, key string) Object { return Object{Data: s.record(key, change)} }
}

func behind(more string) func(*seed, string) Object {
	return func(s *seed, key string) Object {
		return Object{Data: append(s.record(key, func(*tenure.Record) {}), more...)}
	}
}

func token(to fence.Token) func(*tenure.Record) {
	return func(r *tenure.Record) { r.Token, r.History[len(r.History)-1].Token = to, to }
}

func anothers(s *seed, _ string) Object {
	return Object{Data: s.record(s.key, token(s.held.Token+1))}
}

func anothersDeletion(s *seed, _ string) Object {
	data, _, err := objects.WriteDropped(s.key, time.Now())
	if err != nil {
		s.tb.Fatal(err)
	}
	return Object{Data: data}
}

// packed makes an object that is small as it is stored, and large when it is
// unpacked.
func packed(*seed, string) Object {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, 4*objects.MaxBody))
	_ = w.Close()
	return Object{Data: b.Bytes(), Encoding: "gzip"}
}
