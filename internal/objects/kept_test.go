package objects_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

func TestBodiesAreKnownByTheirTagAndBounded(t *testing.T) {
	var b objects.Bodies
	for n := range 5000 {
		b.Keep(fmt.Sprint(n), "1", []byte("x"))
	}
	b.Keep("4999", "2", []byte("newer"))
	if b.Known("4999", "1") != nil || string(b.Known("4999", "2")) != "newer" {
		t.Error("an object is known under a tag that it no longer has, or not under the one it has")
	}
	known := 0
	for n := range 5000 {
		if b.Known(fmt.Sprint(n), "1") != nil {
			known++
		}
	}
	if known > 4096 {
		t.Errorf("%d are kept", known)
	}
}

func TestLargeBodiesAreBoundedByTheirBytes(t *testing.T) {
	var b objects.Bodies
	large := make([]byte, objects.MaxBody)
	for n := range 100 {
		b.Keep(fmt.Sprint(n), "1", large)
		b.Keep(fmt.Sprint(n), "2", large) // replaces the first
	}
	known := 0
	for n := range 100 {
		known += len(b.Known(fmt.Sprint(n), "2"))
	}
	if known > 16<<20 || b.Known("99", "2") == nil {
		t.Errorf("%d bytes are kept", known)
	}
}

func TestNobodySetsAnEarlierDeadlineThanSomebodyBefore(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		rec  tenure.Record
		want time.Duration
	}{
		{"nothing is remembered", tenure.Record{}, time.Second},
		{"renewed before", tenure.Record{State: tenure.Held, Acquired: now, Renewed: now, Deadline: now.Add(time.Minute)}, time.Second},
		{"renewed a moment later than this response shows", tenure.Record{State: tenure.Held, Renewed: now.Add(1500 * time.Millisecond)}, 1500 * time.Millisecond},
		{"freed a moment later", tenure.Record{State: tenure.Free, Deadline: now.Add(1200 * time.Millisecond)}, 1200 * time.Millisecond},
		{"by a clock that was far ahead", tenure.Record{State: tenure.Held, Renewed: now.Add(time.Hour)}, time.Second},
	} {
		if got := objects.Latest(cas.Entry{Record: c.rec, Now: now, Latest: now.Add(time.Second)}); !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: %s after, want %s", c.name, got.Sub(now), c.want)
		}
	}
	if got := objects.Latest(cas.Entry{Now: now, Latest: now}, now.Add(2*time.Second)); !got.Equal(now.Add(2 * time.Second)) {
		t.Errorf("a time that was seen beside is left out: %s", got)
	}
}
