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
		d := &storedRecord{rec: rec, clock: newIdentity(), written: now, store: newIdentity(), named: newIdentity()}
		got, err := decodeRecord(rec.Key, []byte(d.encode()))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("after %s: %v\nread    %+v\nwritten %+v", req.Verb, err, got, d)
		}
	}
	for range 40 {
		mine := claim("codec/key", "ann")
		mine.Guards, mine.Every, mine.HoldFor, mine.Instance = []string{"a", "é", "a"}, time.Hour, 0, "run 1"
		mine.Above = rec.Token + 1000
		step(mine)
		step(tenure.Request{Verb: tenure.Report, Key: mine.Key, Secret: mine.Secret, Progress: "half"})
		step(tenure.Request{Verb: tenure.Checkpoint, Key: mine.Key, Secret: mine.Secret, Checkpoint: "page\x00\xff"})
		step(tenure.Request{Verb: tenure.Release, Key: mine.Key, Secret: mine.Secret, Failed: true})
		step(tenure.Request{Verb: tenure.Reserve, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "bob", TTL: time.Minute, Actor: "olga", Note: "why"})
		step(tenure.Request{Verb: tenure.Revoke, Key: mine.Key, Secret: tenure.NewSecret(), Actor: "otto", Note: "" + "because"})
	}
	last := claim("codec/key", "ann")
	last.Every, last.HoldFor = time.Hour, time.Minute
	step(last)
	step(tenure.Request{Verb: tenure.Release, Key: last.Key, Secret: last.Secret})
	if rec.Grid.IsZero() || rec.HoldUntil.IsZero() || rec.Succeeded.IsZero() {
		t.Errorf("after a success: %+v", rec)
	}
}

// TestAHeartbeatIsReadAsWritten, and is small: a client writes one for each
// lease at every renewal.
func TestAHeartbeatIsReadAsWritten(t *testing.T) {
	now := tenure.Time(time.Now())
	for _, b := range []heartbeat{{written: now, renewed: now}, {written: now, renewed: now.Add(-tenure.MaxTTL)}, {written: now}} {
		text := b.encode()
		if got, err := decodeHeartbeat("k", []byte(text)); err != nil || got != b || len(text) > 20 {
			t.Errorf("%v, %d bytes\nread    %+v\nwritten %+v", err, len(text), got, b)
		}
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
	f.Add((&storedRecord{rec: rec, written: now, store: 1}).encode())
	f.Add((&heartbeat{written: now, renewed: now}).encode())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := decodeRecord("k", []byte(text)); err != nil && !errors.Is(err, ErrDamaged) || err == nil && d.rec.Check() != nil {
			t.Errorf("%v", err)
		}
		if _, err := decodeHeartbeat("k", []byte(text)); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%v", err)
		}
	})
}
