package gcs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// These are the three races of leases on objects. In each, a client has read
// and decided, and its write is held up on the way while another client acts.
// Each race is run with the store as it is, and with a client that leaves out
// the condition. This shows that the condition closes the race.

// pair is two clients of one store. The writes of the first can be held up.
type pair struct {
	slow, quick *Store
	way         *carrier
	clock       *storetest.Clock
}

func newPair(t *testing.T, strip ...string) *pair {
	t.Helper()
	server := testenv.GCS(t)
	name := server.Bucket(t)
	p := &pair{way: &carrier{strip: strip}, clock: storetest.NewClock()}
	slow := Options{Connection: Connection{Endpoint: server.Endpoint, Transport: p.way}, clock: p.clock.Now, SkipProbe: true}
	quick := Options{Connection: at(server.Endpoint), clock: p.clock.Now}
	p.slow, p.quick = open(t, name, &slow), open(t, name, &quick)
	t.Cleanup(func() { p.slow.Close(); p.quick.Close() })
	return p
}

// during sends a request through the slow client and holds its write. Then it
// calls do, and returns the answer.
func (p *pair) during(t *testing.T, req tenure.Request, do func()) store.Answer {
	t.Helper()
	arrived, release := p.way.hold()
	answer := make(chan store.Answer, 1)
	go func() { answer <- one(t.Context(), p.slow, req) }()
	select {
	case <-arrived:
	case <-time.After(testenv.Patience):
		t.Fatalf("%s sends no write", req.Verb)
	}
	do()
	release()
	return <-answer
}

func (p *pair) must(t *testing.T, st *Store, req tenure.Request) store.Answer {
	t.Helper()
	a := one(t.Context(), st, req)
	if a.Err != nil {
		t.Fatalf("%s of %q by %s: %v", req.Verb, req.Key, req.Owner, a.Err)
	}
	return a
}

// bothWays runs a race with the store as it is, which must find nothing wrong.
// Then it runs it without conditions, which must.
func bothWays(t *testing.T, race func(t *testing.T, p *pair) string) {
	t.Helper()
	if wrong := race(t, newPair(t)); wrong != "" {
		t.Error(wrong)
	}
	if race(t, newPair(t, "ifGenerationMatch")) == "" {
		t.Error("a client that leaves the condition out was not caught")
	}
}

// TestAStaleReleaseAfterAReclaimReleasesNothing: the old holder's release
// arrives after its lease has expired and another client has it.
func TestAStaleReleaseAfterAReclaimReleasesNothing(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, p *pair) string {
		mine, next := acquire("races/release", "ann"), acquire("races/release", "bob")
		p.must(t, p.slow, mine)
		a := p.during(t, then(tenure.Release, mine), func() {
			p.clock.Advance(2 * time.Hour)
			p.must(t, p.quick, next)
		})
		rec, err := p.quick.Get(t.Context(), mine.Key)
		switch {
		case err != nil:
			t.Fatal(err)
		case rec.Grant != next.Secret.Grant() || rec.State != tenure.Held:
			return "a stale release has freed the next owner's lease"
		case !errors.Is(a.Err, tenure.ErrNotOwned):
			return fmt.Sprintf("the stale release was answered with %v, want not owned", a.Err)
		}
		return ""
	})
}

// TestADoubleReclaimHasOneWinner: two clients have read the same expired lease.
func TestADoubleReclaimHasOneWinner(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, p *pair) string {
		p.must(t, p.quick, acquire("races/reclaim", "cleo"))
		p.clock.Advance(2 * time.Hour)
		mine, next := acquire("races/reclaim", "ann"), acquire("races/reclaim", "bob")
		a := p.during(t, mine, func() { p.must(t, p.quick, next) })
		if a.Err == nil {
			return "two were granted one expired lease"
		}
		var held *tenure.HeldError
		if !errors.As(a.Err, &held) || held.Record.Grant != next.Secret.Grant() {
			return fmt.Sprintf("the loser was told %v, want that the winner holds it", a.Err)
		}
		return ""
	})
}

// TestACreateAfterADeleteHasOneWinner: two clients have read that there is no
// record, because it was deleted.
func TestACreateAfterADeleteHasOneWinner(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, p *pair) string {
		old := acquire("races/create", "cleo")
		p.must(t, p.quick, old)
		if err := p.quick.reg.delete(t.Context(), p.quick.reg.layout.Record(old.Key), nil); err != nil {
			t.Fatal(err)
		}
		mine, next := acquire(old.Key, "ann"), acquire(old.Key, "bob")
		if a := p.during(t, mine, func() { p.must(t, p.quick, next) }); a.Err == nil {
			return "two were granted a key whose record was deleted"
		}
		return ""
	})
}

// TestAClaimOfADroppedRecordIsNotLost: a sweep has put a tombstone in a
// record's place, and its delete would come after another's claim. Deletes on
// this server ignore their condition, so the store must not send it.
func TestAClaimOfADroppedRecordIsNotLost(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	old := acquire("races/drop", "cleo")
	p.must(t, p.slow, old)
	p.must(t, p.slow, then(tenure.Release, old))
	p.clock.Advance(48 * time.Hour)
	arrived, release := p.way.hold() // holds the tombstone
	swept := make(chan error, 1)
	go func() { _, err := p.slow.Sweep(t.Context()); swept <- err }()
	<-arrived
	next := acquire(old.Key, "bob")
	p.must(t, p.quick, next)
	release()
	if err := <-swept; err != nil {
		t.Fatal(err)
	}
	if rec, err := p.quick.Get(t.Context(), old.Key); err != nil || rec.Grant != next.Secret.Grant() {
		t.Errorf("a sweep has taken a record that was granted meanwhile: %+v, %v", rec, err)
	}
	// A dropped record leaves a tombstone on this server. The next claim
	// replaces it.
	p.must(t, p.quick, then(tenure.Release, next))
	p.clock.Advance(48 * time.Hour)
	if n, err := p.slow.Sweep(t.Context()); n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	if c, err := p.quick.reg.get(t.Context(), p.quick.reg.layout.Record(old.Key)); err != nil || !strings.Contains(string(c.data), `"dropped"`) {
		t.Errorf("in place of the record is %s, %v; want a tombstone", c.data, err)
	}
	if a := p.must(t, p.quick, acquire(old.Key, "dora")); a.Record.Cause != tenure.First {
		t.Errorf("a dropped key begins with cause %q", a.Record.Cause)
	}
}

// TestADeleteThatComesAfterAClaimDeletesNothing: on this server deletes honour
// their condition. A tombstone is deleted, unless a claim has replaced it
// meanwhile.
func TestADeleteThatComesAfterAClaimDeletesNothing(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name, clock, way := server.Bucket(t), storetest.NewClock(), &carrier{}
	slow := open(t, name, &Options{Connection: Connection{Endpoint: server.Endpoint, Transport: way}, clock: clock.Now})
	quick := open(t, name, &Options{Connection: at(server.Endpoint), clock: clock.Now})
	p := &pair{slow: slow, quick: quick, way: way, clock: clock}
	t.Cleanup(func() { slow.Close(); quick.Close() })
	if honoured, err := slow.reg.deletesOnCondition(t.Context(), slow.reg.layout.Trial()); !honoured || err != nil {
		t.Fatal(honoured, err)
	}
	old := acquire("races/delete", "cleo")
	p.must(t, quick, old)
	p.must(t, quick, then(tenure.Release, old))
	clock.Advance(48 * time.Hour)
	arrived, release := way.holdAfter(1) // lets the tombstone pass, and holds its delete
	swept := make(chan error, 1)
	go func() { _, err := slow.Sweep(t.Context()); swept <- err }()
	<-arrived
	next := acquire(old.Key, "bob")
	p.must(t, quick, next)
	release()
	if err := <-swept; err != nil {
		t.Fatal(err)
	}
	if rec, err := quick.Get(t.Context(), old.Key); err != nil || rec.Grant != next.Secret.Grant() {
		t.Errorf("a late delete has taken a claim: %+v, %v", rec, err)
	}
	p.must(t, quick, then(tenure.Release, next))
	clock.Advance(48 * time.Hour)
	if n, err := slow.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if c, err := quick.reg.get(t.Context(), quick.reg.layout.Record(old.Key)); err != nil || c.generation != 0 {
		t.Errorf("a dropped record left %s, %v", c.data, err)
	}
	// An interrupted probe has left an object. It stays while it is young.
	if _, err := quick.reg.put(t.Context(), quick.reg.layout.Trial(), 0, nonce(), ""); err != nil {
		t.Fatal(err)
	}
	later := newProxy(t, server.Endpoint)
	later.on(func(*http.Request) *fault { return &fault{} })
	tomorrow := open(t, name, &Options{Connection: at(later.URL), clock: clock.Now, SkipProbe: true})
	defer tomorrow.Close()
	for _, shift := range []time.Duration{0, 25 * time.Hour} {
		later.shift = shift
		if _, err := tomorrow.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := 0
		for page, err := range quick.reg.pages(t.Context(), "croft/probes/trial-") {
			if err != nil {
				t.Fatal(err)
			}
			left += len(page)
		}
		if (left == 0) != (shift > 0) {
			t.Errorf("after %s a sweep leaves %d trials", shift, left)
		}
	}
	// An interrupted sweep has left a tombstone. The next sweep removes it.
	data, _, _ := objects.WriteDropped(old.Key, clock.Now())
	if _, err := quick.reg.put(t.Context(), quick.reg.layout.Record(old.Key), 0, data, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := quick.reg.get(t.Context(), quick.reg.layout.Record(old.Key)); err != nil || c.generation != 0 {
		t.Errorf("a sweep left %s, %v", c.data, err)
	}
}

// TestAHundredReclaimOneLease: one is granted the lease. The others learn with
// at most three requests who holds it.
func TestAHundredReclaimOneLease(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, clock, way := server.Bucket(t), storetest.NewClock(), &carrier{}
	o := Options{Connection: Connection{Endpoint: server.Endpoint, Transport: way}, clock: clock.Now}
	var handles []*Store
	for range 10 {
		st := open(t, name, &o)
		t.Cleanup(func() { st.Close() })
		handles = append(handles, st)
	}
	if a := one(t.Context(), handles[0], acquire("hundred/workers", "gone")); a.Err != nil {
		t.Fatal(a.Err)
	}
	clock.Advance(2 * time.Hour)
	way.sent()
	const workers = 100
	answers, requests := make([]store.Answer, workers), make([]tenure.Request, workers)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range workers {
		requests[i] = acquire("hundred/workers", fmt.Sprintf("worker %d", i))
		all.Go(func() {
			<-start
			answers[i] = one(t.Context(), handles[i%len(handles)], requests[i])
		})
	}
	close(start)
	all.Wait()
	winner := fence.Grant("")
	for i, a := range answers {
		if a.Err == nil {
			if winner != "" {
				t.Fatal("two were granted")
			}
			winner = requests[i].Secret.Grant()
		}
	}
	for _, a := range answers {
		var held *tenure.HeldError
		if a.Err != nil && (!errors.As(a.Err, &held) || held.Record.Grant != winner) {
			t.Errorf("a loser was told: %v", a.Err)
		}
	}
	if winner == "" {
		t.Error("nobody was granted")
	}
	if n := way.sent(); n > 3*workers {
		t.Errorf("%d requests for %d workers", n, workers)
	}
}
