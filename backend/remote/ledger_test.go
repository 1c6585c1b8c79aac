package remote

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/worktest"
)

// overLedger is a ledger in memory behind servers, one for each handle, as
// clients of different servers on one ledger have it.
func overLedger(reach func(tb testing.TB, l work.Ledger) work.Ledger) func(testing.TB) worktest.Harness {
	return func(testing.TB) worktest.Harness {
		clock := storetest.NewClock()
		base := mem.NewLedger(&mem.Options{Now: clock.Now})
		return worktest.Harness{
			Open:    func(tb testing.TB) work.Ledger { return reach(tb, base.Open()) },
			Advance: clock.Advance,
			Slow:    true,
		}
	}
}

// ledgerAt opens a ledger behind a server until the test ends.
func ledgerAt(tb testing.TB, base string, o *Options) *Ledger {
	tb.Helper()
	l, err := OpenLedger(base, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// TestLedgerConformance runs the whole suite of ledgers through a server, TLS
// and a network that delays everything and breaks connections at random.
func TestLedgerConformance(t *testing.T) {
	t.Parallel()
	n := &tries{}
	t.Cleanup(func() { n.check(t) })
	worktest.Run(t, overLedger(func(tb testing.TB, base work.Ledger) work.Ledger {
		front, ca := serveLedgerTLS(tb, base, nil)
		slow, frail := badLinks(tb, front)
		far := ledgerAt(tb, slow, &Options{CAFile: ca})
		if strings.Contains(tb.Name(), "/races/") {
			return far // what the law says of a request is soon out of date
		}
		return &insistentLedger{far, ledgerAt(tb, frail, &Options{CAFile: ca}), base, n}
	}))
}

// insistentLedger is a ledger over a frail network, as [insistent] is a store.
// These calls go over the embedded Ledger: claims, because the server gives the
// items back if their client is gone; takings, whose second copy takes other
// effects; settlements; and what prunes and wakes.
type insistentLedger struct {
	*Ledger

	frail *Ledger
	base  work.Ledger
	n     *tries
}

// Apply insists on requests that change something. The second copy of such a
// request is answered like the first, except that it says so. But a ledger
// notes a refused request each time.
func (l *insistentLedger) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	if twice(requests, func(q work.Request) string { return string(q.ID) }) ||
		slices.ContainsFunc(requests, func(q work.Request) bool { return !l.changes(ctx, q) }) {
		return l.Ledger.Apply(ctx, requests)
	}
	answers := insistAll(ctx, l.n, requests, l.frail.Apply, func(a work.Answer) error { return a.Err })
	for i := range answers {
		answers[i].Repeated = false
	}
	return answers
}

// changes reports whether a request changes its item, by the law.
func (l *insistentLedger) changes(ctx context.Context, q work.Request) bool {
	if q.Unique != "" {
		return false // another item may have its idempotency key
	}
	it, err := l.base.Get(ctx, q.ID)
	if err != nil && !errors.Is(err, work.ErrNotFound) {
		return false
	}
	now, err := l.base.Now(ctx)
	if err != nil {
		return false
	}
	done, err := work.Apply(it, q, now)
	return err == nil && done.Changed
}

func (l *insistentLedger) Get(ctx context.Context, id work.ID) (it work.Item, err error) {
	err = insist(ctx, l.n, func() error {
		it, err = l.frail.Get(ctx, id)
		return err
	})
	return it, err
}

func (l *insistentLedger) Now(ctx context.Context) (now time.Time, err error) {
	err = insist(ctx, l.n, func() error {
		now, err = l.frail.Now(ctx)
		return err
	})
	return now, err
}

func (l *insistentLedger) Stats(ctx context.Context, queue string) (all []work.Stats, err error) {
	err = insist(ctx, l.n, func() error {
		all, err = l.frail.Stats(ctx, queue)
		return err
	})
	return all, err
}

func (l *insistentLedger) List(ctx context.Context, q work.Query) iter.Seq2[work.Item, error] {
	return again(ctx, l.n, func() iter.Seq2[work.Item, error] { return l.frail.List(ctx, q) })
}

func (l *insistentLedger) Effects(ctx context.Context, q work.EffectQuery) iter.Seq2[work.Effect, error] {
	return again(ctx, l.n, func() iter.Seq2[work.Effect, error] { return l.frail.Effects(ctx, q) })
}

func (l *insistentLedger) Refusals(ctx context.Context, q work.RefusalQuery) iter.Seq2[work.Refusal, error] {
	return again(ctx, l.n, func() iter.Seq2[work.Refusal, error] { return l.frail.Refusals(ctx, q) })
}

func (l *insistentLedger) Close() error { return errors.Join(l.Ledger.Close(), l.frail.Close()) }

// serveLedgerTLS starts a server on a ledger, with a certificate for 127.0.0.1.
func serveLedgerTLS(tb testing.TB, l work.Ledger, o *server.Options) (front *httptest.Server, ca string) {
	tb.Helper()
	if o == nil {
		o = &server.Options{}
	}
	o.Ledger = l
	return serveTLSWith(tb, server.New(mem.New(nil), o), nil)
}

// ledgerOverNetwork makes a ledger that reaches its server over a bad network,
// a handle on the ledger itself, and the network.
func ledgerOverNetwork(t *testing.T) (far, near work.Ledger, net *testenv.Network) {
	t.Helper()
	base := mem.NewLedger(nil)
	front, ca := serveLedgerTLS(t, base.Open(), nil)
	net = testenv.NewNetwork(t, front.Listener.Addr().String())
	return ledgerAt(t, "https://"+net.Addr, &Options{CAFile: ca}), base, net
}

// TestALostReplyAboutAnItemLeavesOneTruth cuts the connection after the server
// has carried out the request, for every kind of request.
func TestALostReplyAboutAnItemLeavesOneTruth(t *testing.T) {
	t.Parallel()
	far, near, net := ledgerOverNetwork(t)
	worktest.CutAfterRequest(t, far, near, net.LoseReply)
}

// TestALostRequestAboutAnItemLeavesNothing cuts the connection before the
// server gets the request.
func TestALostRequestAboutAnItemLeavesNothing(t *testing.T) {
	t.Parallel()
	far, near, net := ledgerOverNetwork(t)
	worktest.CutBeforeRequest(t, far, near, net.LoseRequests)
}

// TestALedgerThatIsNotThereIsUnknown asks a port that nobody listens on.
func TestALedgerThatIsNotThereIsUnknown(t *testing.T) {
	t.Parallel()
	worktest.NotThere(t, ledgerAt(t, "http://127.0.0.1:1", nil))
}

// TestAServerWithoutALedgerSaysSo, and workers need not ask it again.
func TestAServerWithoutALedgerSaysSo(t *testing.T) {
	t.Parallel()
	l := ledgerAt(t, serve(t, mem.New(nil), nil).URL, nil)
	_, nowErr := l.Now(t.Context())
	_, claimErr := l.Claim(t.Context(), work.Claim{
		Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute,
	})
	_, wakeErr := l.Wake(t.Context(), work.Wanted{Queues: []string{"q"}})
	add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"}
	for what, err := range map[string]error{
		"Now": nowErr, "Claim": claimErr, "Apply": l.Apply(t.Context(), []work.Request{add})[0].Err,
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !store.IsFault(err) || !strings.Contains(err.Error(), "no work items") {
			t.Errorf("%s: %v; want a fault that says it", what, err)
		}
	}
	if !errors.Is(wakeErr, errors.ErrUnsupported) {
		t.Errorf("Wake: %v", wakeErr)
	}
}

// TestTheAnswerToAnotherWorkerIsNoGrant: a proxy mixes up the answers to two
// workers.
func TestTheAnswerToAnotherWorkerIsNoGrant(t *testing.T) {
	t.Parallel()
	base := mem.NewLedger(nil)
	add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"}
	theirs := work.Claim{Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	if a := base.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	items, err := base.Claim(t.Context(), theirs)
	if err != nil || len(items) != 1 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	beat := work.Request{Verb: work.Heartbeat, ID: add.ID, Token: items[0].Record.Token, Secret: theirs.Secret}
	mixing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/claim") {
			_, _ = w.Write(wire.ClaimedItems([]wire.Claimed{{Item: items[0]}}))
			return
		}
		_, _ = w.Write(wire.WorkAnswers(base.Apply(t.Context(), []work.Request{beat}), nil))
	}))
	t.Cleanup(mixing.Close)
	l := ledgerAt(t, mixing.URL, nil)
	mine := theirs
	mine.Secret, mine.Owner = tenure.NewSecret(), "bob"
	if got, err := l.Claim(t.Context(), mine); len(got) != 0 || !errors.Is(err, work.ErrUnknown) || store.IsFault(err) {
		t.Errorf("bob is answered %d items, %v; want unknown", len(got), err)
	}
	myBeat := beat
	myBeat.Secret = mine.Secret
	if a := l.Apply(t.Context(), []work.Request{myBeat})[0]; !errors.Is(a.Err, work.ErrUnknown) || store.IsFault(a.Err) {
		t.Errorf("bob's heartbeat is answered %v; want unknown", a.Err)
	}
	if a := l.Apply(t.Context(), []work.Request{beat})[0]; a.Err != nil {
		t.Errorf("ann's heartbeat is answered %v", a.Err)
	}
}

// TestAServerThatGivesMoreThanWasAskedForIsNotFollowed: it gives too many items
// to a claim, and its listings never end.
func TestAServerThatGivesMoreThanWasAskedForIsNotFollowed(t *testing.T) {
	t.Parallel()
	c := work.Claim{Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	it := work.Item{ID: work.NewID(), Queue: "q", State: work.Running, Record: tenure.Record{Token: 7, Grant: c.Secret.Grant()}}
	two := it
	two.ID = work.NewID()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Content-Type", wire.JSON)
			_, _ = w.Write(wire.ClaimedItems([]wire.Claimed{{Item: it}, {Item: two}}))
			return
		}
		w.Header().Set("Content-Type", wire.Lines)
		line := wire.Line(it)
		if r.URL.Path == "/v1/work/stats" {
			line = wire.Line(work.Stats{Queue: "q"})
		}
		for r.Context().Err() == nil {
			if _, err := w.Write(append(line, '\n')); err != nil {
				return
			}
		}
	}))
	t.Cleanup(front.Close)
	l := ledgerAt(t, front.URL, nil)
	if items, err := l.Claim(t.Context(), c); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a claim of one item: %d items, %v; want unknown", len(items), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for _, err := range l.List(ctx, work.Query{Limit: 3}) {
		if n++; err != nil || n > 3 {
			t.Errorf("item %d of 3: %v", n, err)
			break
		}
	}
	if stats, err := l.Stats(ctx, "q"); !errors.Is(err, store.ErrUnknown) || ctx.Err() != nil {
		t.Errorf("%d states of one queue, %v; want unknown before the test ends it", len(stats), err)
	}
}

// TestAClaimIsNotSentAgainBehindItsCallersBack: the connection, which was used
// before, breaks after the server has carried out the call. A second copy of a
// claim or a taking would take something else, and its answer would hide the
// first.
func TestAClaimIsNotSentAgainBehindItsCallersBack(t *testing.T) {
	t.Parallel()
	base := mem.NewLedger(nil)
	var calls atomic.Int32
	srv := server.New(mem.New(nil), &server.Options{Ledger: base})
	t.Cleanup(srv.Drain)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			srv.ServeHTTP(w, r)
			return
		}
		calls.Add(1)
		srv.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(front.Close)
	l := ledgerAt(t, front.URL, nil)
	add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"}
	if a := base.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	stamp := fence.Stamp{Key: "work/dispatch", Token: 7, Grant: tenure.NewSecret().Grant()}
	for what, call := range map[string]func() error{
		"a claim": func() error {
			_, err := l.Claim(t.Context(), work.Claim{
				Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Hour,
			})
			return err
		},
		"a taking": func() error {
			_, err := l.Take(t.Context(), work.Taking{Stamp: stamp, Limit: 1, Hold: time.Hour})
			return err
		},
	} {
		if _, err := l.Now(t.Context()); err != nil { // now there is an idle connection
			t.Fatal(err)
		}
		calls.Store(0)
		if err := call(); !errors.Is(err, work.ErrUnknown) || store.IsFault(err) || calls.Load() != 1 {
			t.Errorf("%s was sent %d times, and is answered %v; want once, and unknown", what, calls.Load(), err)
		}
	}
}

// TestLongItemsComeWhole: a claim of more bytes than an answer carries. All of
// their stamps are signed.
func TestLongItemsComeWhole(t *testing.T) {
	t.Parallel()
	base := mem.NewLedger(nil)
	key := signed.NewKey()
	l := ledgerAt(t, serveLedger(t, base, &server.Options{SignKey: key}).URL, nil)
	const items = 5 // an answer carries four
	want := map[work.ID]byte{}
	for i := range items {
		add := work.Request{
			Verb: work.Add, ID: work.NewID(), Queue: "q", Payload: bytes.Repeat([]byte{byte(i)}, work.MaxPayload),
		}
		if a := base.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		want[add.ID] = byte(i)
	}
	c := work.Claim{Queues: []string{"q"}, Limit: 100, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Hour}
	got, err := l.Claim(t.Context(), c)
	if err != nil || len(got) != items {
		t.Fatalf("%d items, %v", len(got), err)
	}
	for _, it := range got {
		if len(it.Payload) != work.MaxPayload || it.Payload[0] != want[it.ID] {
			t.Errorf("a payload of %d bytes", len(it.Payload))
		}
		if err := key.Public().CheckNow(it.Stamp()); err != nil || it.Deed(c.Secret).Stamp() != it.Stamp() {
			t.Errorf("the stamp %s: %v; the deed has %s", it.Stamp(), err, it.Deed(c.Secret).Stamp())
		}
	}
}

// TestALargeClaimIsFoundAgain: it is more than the server claims in one call of
// the ledger.
func TestALargeClaimIsFoundAgain(t *testing.T) {
	t.Parallel()
	base := mem.NewLedger(nil)
	l := ledgerAt(t, serveLedger(t, base, nil).URL, nil)
	const items = 100
	var adds []work.Request
	for range items + 5 {
		adds = append(adds, work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q", Payload: []byte("payload")})
	}
	for _, a := range l.Apply(t.Context(), adds) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	c := work.Claim{Queues: []string{"q"}, Limit: items, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Hour}
	for _, c.Again = range []bool{false, true} {
		got, err := l.Claim(t.Context(), c)
		if err != nil || len(got) != items {
			t.Fatalf("again %v: %d items, %v", c.Again, len(got), err)
		}
		for i, it := range got {
			if it.ID != adds[i].ID || string(it.Payload) != "payload" {
				t.Fatalf("again %v: item %d is %s with %q", c.Again, i, it.ID, it.Payload)
			}
		}
	}
}

// serveLedger starts a server on a ledger.
func serveLedger(tb testing.TB, l work.Ledger, o *server.Options) *httptest.Server {
	tb.Helper()
	if o == nil {
		o = &server.Options{}
	}
	o.Ledger = l
	return serve(tb, mem.New(nil), o)
}
