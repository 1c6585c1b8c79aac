package etcd

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestStoredRecordsAreReadAsWritten, with all fields, after every kind of
// change.
func TestStoredRecordsAreReadAsWritten(t *testing.T) {
	now := tenure.Time(time.Now())
	rec := tenure.Record{}
	step := func(req tenure.Request) {
		t.Helper()
		now = now.Add(time.Second)
		next, _, err := tenure.Apply(rec, req, now)
		if err != nil {
			t.Fatal(err)
		}
		rec = next
		d := &storedRecord{rec: rec, clock: newIdentity(), written: now, lease: 1 << 62, page: pageID{newIdentity(), 1 << 31}, slot: 95, offeredTo: newIdentity()}
		got, err := decodeRecord(rec.Key, []byte(d.encode()))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("after %s: %v\nread    %+v\nwritten %+v", req.Verb, err, got, d)
		}
		shelf := d.shelve()
		if got, err = decodeRecord(rec.Key, []byte(d.encode())); err == nil && shelf != "" {
			err = got.decodeShelf([]byte(shelf))
		}
		if err != nil || !reflect.DeepEqual(got, d) || !reflect.DeepEqual(got.history(), rec.History) {
			t.Fatalf("after %s, with a shelf: %v\nread    %+v\nwritten %+v", req.Verb, err, got, d)
		}
		if got, err = decodeRecord(rec.Key, []byte(d.encodeWhole())); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("after %s, whole: %v\nread    %+v\nwritten %+v", req.Verb, err, got, d)
		}
	}
	for range 40 {
		mine := claim("codec/key", "ann")
		mine.Guards, mine.Every, mine.HoldFor, mine.Instance = []string{"a", "é", "a"}, time.Hour, 0, "run 1"
		mine.Above = rec.Token + 1000
		step(mine)
		step(tenure.Request{Verb: tenure.Report, Key: mine.Key, Secret: mine.Secret, Progress: "half"})
		step(tenure.Request{Verb: tenure.Release, Key: mine.Key, Secret: mine.Secret, Failed: true})
		step(tenure.Request{Verb: tenure.Reserve, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "bob", TTL: time.Minute, Actor: "olga", Note: "why"})
		step(tenure.Request{Verb: tenure.Revoke, Key: mine.Key, Secret: tenure.NewSecret(), Actor: "otto", Note: "" + "because"})
	}
}

// FuzzDecode: any value in etcd is either read as it was written or reported as
// damaged.
func FuzzDecode(f *testing.F) {
	now := tenure.Time(time.Now())
	rec, _, err := tenure.Apply(tenure.Record{}, claim("k", "ann"), now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add((&storedRecord{rec: rec, written: now}).encode())
	f.Add((&page{written: now, renewed: map[int]time.Time{3: now}}).encode())
	d := &storedRecord{rec: rec, written: now}
	for range 10 {
		d.rec.History = append(d.rec.History, d.rec.History[len(d.rec.History)-1])
	}
	f.Add(d.shelve())
	f.Add(d.encodeWhole())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := decodeRecord("k", []byte(text)); err != nil && !errors.Is(err, ErrDamaged) || err == nil && d.rec.Check() != nil {
			t.Errorf("%v", err)
		}
		shelved := &storedRecord{rec: rec, shelved: rec.Token - 1}
		if err := shelved.decodeShelf([]byte(text)); err != nil && !errors.Is(err, ErrDamaged) || err == nil && !shelved.complete() {
			t.Errorf("%v", err)
		}
		if _, err := decodePage("p", []byte(text)); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%v", err)
		}
	})
}
