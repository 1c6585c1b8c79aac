package gcs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestRequestsPerOperation checks the costs in the documentation.
func TestRequestsPerOperation(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), &carrier{}
	connection := Connection{Endpoint: server.Endpoint, Transport: way}
	st := open(t, name, &Options{Connection: connection})
	defer st.Close()
	way.sent()
	ctx := t.Context()
	expect := func(what string, reads, writes int64) {
		t.Helper()
		if r, w := way.reads.Swap(0), way.writes.Swap(0); r > reads || w > writes {
			t.Errorf("%s: %d reads and %d writes, want %d and %d at most", what, r, w, reads, writes)
		}
	}
	must := func(req tenure.Request) {
		t.Helper()
		if a := one(ctx, st, req); a.Err != nil {
			t.Fatalf("%s: %v", req.Verb, a.Err)
		}
	}
	mine := acquire("costs/lease", "ann")
	must(mine)
	expect("acquiring a free key", 1, 1)
	for range 3 {
		must(then(tenure.Renew, mine))
		expect("renewing", 0, 1)
	}
	must(then(tenure.Report, mine))
	expect("reporting", 0, 1)
	for range 3 {
		if a := one(ctx, st, acquire(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatal(a.Err)
		}
		expect("asking for a held key", 1, 0)
	}
	must(then(tenure.Release, mine))
	expect("releasing", 0, 1)
	must(acquire(mine.Key, "bob"))
	expect("acquiring a released key", 1, 1)
	if _, err := st.Get(ctx, mine.Key); err != nil {
		t.Fatal(err)
	}
	expect("showing", 1, 0)

	// The first opening makes a trial and leaves a note. This process remembers
	// it, and another process reads the note.
	again := open(t, name, &Options{Connection: connection})
	defer again.Close()
	expect("opening again", 0, 0)
	trials.Delete("writes " + st.reg.address)
	other := open(t, name, &Options{Connection: connection})
	defer other.Close()
	expect("opening in another process", 1, 0)

	// Another process renews and releases this lease. It has to read first.
	hand := acquire("costs/hand", "ann")
	must(hand)
	way.sent()
	if a := one(ctx, other, then(tenure.Renew, hand)); a.Err != nil {
		t.Fatal(a.Err)
	}
	expect("renewing from another process", 1, 1)
	// A takeover by another is noticed by the condition, and then costs a read.
	must(tenure.Request{Verb: tenure.Takeover, Key: hand.Key, Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"})
	way.sent()
	if a := one(ctx, other, then(tenure.Renew, hand)); !errors.Is(a.Err, tenure.ErrNotOwned) {
		t.Fatal(a.Err)
	}
	expect("renewing what was taken over", 1, 1)
}

// TestRequestsPerGuardedWrite checks the costs in the documentation.
func TestRequestsPerGuardedWrite(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	way := &carrier{}
	g := openGuard(t, server.Bucket(t), "out.json", GuardOptions{Connection: Connection{Endpoint: server.Endpoint, Transport: way}, InMemory: 100})
	way.sent()
	expect := func(what string, most int64) {
		t.Helper()
		if n := way.sent(); n > most {
			t.Errorf("%s: %d requests, want %d at most", what, n, most)
		}
	}
	for n, s := range []string{"first", "second"} {
		if _, err := g.Write(t.Context(), stamp(10, 1, uint64(n+1)), strings.NewReader(s)); err != nil {
			t.Fatal(err)
		}
		expect("a "+s+" write", 2)
	}
	if _, err := g.Raise(t.Context(), stamp(11, 2, 0)); err != nil {
		t.Fatal(err)
	}
	expect("a raise", 2)
	if _, err := g.Raise(t.Context(), stamp(11, 2, 0)); err != nil {
		t.Fatal(err)
	}
	expect("the same raise", 1)
	if _, err := g.Write(t.Context(), stamp(11, 2, 0), strings.NewReader("long "+string(make([]byte, 200)))); err != nil {
		t.Fatal(err)
	}
	expect("a long write", 7)
	if _, err := g.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("looking at the mark", 1)
}

// TestAListingOfAPrefixReadsOnlyItsRecords: the metadata of the others shows
// their keys.
func TestAListingOfAPrefixReadsOnlyItsRecords(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), &carrier{}
	near := open(t, name, &Options{Connection: at(server.Endpoint)})
	defer near.Close()
	for _, key := range []string{"reports/daily", "reports/wöchentlich: 100 %", "jobs/a", "jobs/b", "jobs/c"} {
		if a := one(t.Context(), near, acquire(key, "ann")); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	st := open(t, name, &Options{Connection: Connection{Endpoint: server.Endpoint, Transport: way}})
	defer st.Close()
	way.sent()
	for _, c := range []struct {
		prefix      string
		keys, reads int64
		what        string
	}{
		{"reports/", 2, 3, "a prefix"},
		{"reports/w", 1, 1, "what was read before"},
		{"", 5, 4, "everything"},
		{"", 5, 1, "everything again"},
	} {
		keys := int64(0)
		for _, err := range st.List(t.Context(), c.prefix) {
			if err != nil {
				t.Fatal(err)
			}
			keys++
		}
		if n := way.sent(); keys != c.keys || n != c.reads {
			t.Errorf("%s: %d keys in %d requests, want %d in %d", c.what, keys, n, c.keys, c.reads)
		}
	}
}
