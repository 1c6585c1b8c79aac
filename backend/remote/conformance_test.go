package remote

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"hash/fnv"
	"iter"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/test/faultnet"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// serve starts a server on a store until the test ends, and returns its URL.
func serve(tb testing.TB, st store.Store, o *server.Options) *httptest.Server {
	tb.Helper()
	srv := server.New(st, o)
	front := httptest.NewUnstartedServer(srv)
	front.Config.ErrorLog = nil
	front.Start()
	tb.Cleanup(func() {
		srv.Drain()
		front.Close()
	})
	return front
}

// connect opens a client of a server until the test ends.
func connect(tb testing.TB, base string, o *Options) *Store {
	tb.Helper()
	s, err := Open(base, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// overMem is a place in memory behind servers, one for each handle, as clients
// of different servers on one store have it.
func overMem(reach func(tb testing.TB, st store.Store) store.Store) func(testing.TB) storetest.Harness {
	return func(testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		base := mem.New(&mem.Options{Now: clock.Now})
		return storetest.Harness{
			Open: func(tb testing.TB, o storetest.Options) store.Store {
				return reach(tb, base.Open(&mem.Options{Retention: o.Retention}))
			},
			Wipe:    func(testing.TB) { base.Wipe() },
			Advance: clock.Advance,
			Slow:    true,
		}
	}
}

func plainly(tb testing.TB, st store.Store) store.Store {
	return connect(tb, serve(tb, st, nil).URL, nil)
}

// TestConformance runs the whole suite of lease stores, through a server.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, overMem(plainly))
}

// TestConformanceOverADirectory runs the parts of the suite that concern time,
// on a store with a clock of its own.
func TestConformanceOverADirectory(t *testing.T) {
	t.Parallel()
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness {
		path := filepath.Join(tb.TempDir(), "store")
		return storetest.Harness{
			Open: func(tb testing.TB, o storetest.Options) store.Store {
				st, err := dir.Open(path, &dir.Options{Retention: o.Retention})
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(func() { _ = st.Close() })
				return plainly(tb, st)
			},
			Wipe: func(tb testing.TB) {
				if err := os.RemoveAll(path); err != nil {
					tb.Fatal(err)
				}
			},
			Slow:  true,
			Grain: 20 * time.Millisecond,
		}
	})
}

// TestConformanceThroughABadNetwork delays everything, through TLS, and breaks
// connections at random.
func TestConformanceThroughABadNetwork(t *testing.T) {
	t.Parallel()
	n := &tries{}
	t.Cleanup(func() { n.check(t) })
	storetest.Run(t, overMem(func(tb testing.TB, st store.Store) store.Store {
		front, ca := serveTLS(tb, st, nil)
		slow, frail := badLinks(tb, front)
		return &insistent{
			Store: connect(tb, slow, &Options{CAFile: ca}),
			frail: connect(tb, frail, &Options{CAFile: ca}),
			n:     n,
		}
	}))
}

// badLinks makes two ways to a server, through networks that delay everything.
// The frail one also loses requests and replies, and breaks streams.
func badLinks(tb testing.TB, front *httptest.Server) (slow, frail string) {
	tb.Helper()
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(tb.Name()))
	link := func(f faultnet.Fault) string {
		l, err := faultnet.New(func() string { return front.Listener.Addr().String() })
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(l.Close)
		l.Set(f)
		return "https://" + l.Addr()
	}
	f := faultnet.Fault{Delay: 500 * time.Microsecond, OneIn: 40, Seed: seed.Sum64()}
	f.Kind = faultnet.Slow
	slow = link(f)
	f.Kind = faultnet.Frail
	return slow, link(f)
}

// tries counts calls over a frail network, and those that were asked again.
type tries struct{ calls, lost atomic.Int64 }

// check checks that the network was bad enough to prove something.
func (n *tries) check(tb testing.TB) {
	tb.Helper()
	calls, lost := n.calls.Load(), n.lost.Load()
	tb.Logf("of %d calls, %d were asked again", calls, lost)
	if lost < calls/500 {
		tb.Errorf("of %d calls, only %d were asked again", calls, lost)
	}
}

// insistent is a store over a frail network. It asks again until it has an
// answer, as clients do. Calls whose second copy is another call go over the
// embedded Store, whose network is only slow: a sweep counts what it drops, and
// a watch that breaks tells its waiter so.
type insistent struct {
	*Store

	frail *Store
	n     *tries
}

// insist calls do until its outcome is known, or ctx has ended.
func insist(ctx context.Context, n *tries, do func() error) error {
	for {
		n.calls.Add(1)
		err := do()
		if !errors.Is(err, store.ErrUnknown) || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return err
		}
		n.lost.Add(1)
	}
}

func (s *insistent) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	if twice(requests, func(q tenure.Request) string { return q.Key }) {
		return s.Store.Apply(ctx, requests)
	}
	return insistAll(ctx, s.n, requests, s.frail.Apply, func(a store.Answer) error { return a.Err })
}

// twice reports whether a batch has two requests about one thing. Such a batch
// has other answers the second time, because each request then meets what the
// later ones have done.
func twice[Q any](requests []Q, about func(Q) string) bool {
	seen := map[string]bool{}
	for _, q := range requests {
		if seen[about(q)] {
			return true
		}
		seen[about(q)] = true
	}
	return false
}

// insistAll sends a batch until all its requests have answers.
func insistAll[Q, A any](
	ctx context.Context, n *tries, requests []Q,
	apply func(context.Context, []Q) []A, failed func(A) error,
) []A {
	answers := make([]A, len(requests))
	open := make([]int, len(requests)) // the requests without an answer
	for i := range requests {
		open[i] = i
	}
	_ = insist(ctx, n, func() (err error) {
		var some []Q
		for _, i := range open {
			some = append(some, requests[i])
		}
		var still []int
		for k, a := range apply(ctx, some) {
			i := open[k]
			if answers[i] = a; errors.Is(failed(a), store.ErrUnknown) {
				still, err = append(still, i), failed(a)
			}
		}
		open = still
		return err
	})
	return answers
}

func (s *insistent) Get(ctx context.Context, key string) (rec tenure.Record, err error) {
	err = insist(ctx, s.n, func() error {
		rec, err = s.frail.Get(ctx, key)
		return err
	})
	return rec, err
}

func (s *insistent) Now(ctx context.Context) (now time.Time, err error) {
	err = insist(ctx, s.n, func() error {
		now, err = s.frail.Now(ctx)
		return err
	})
	return now, err
}

// List gathers the records first, because a listing that breaks begins anew.
func (s *insistent) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return again(ctx, s.n, func() iter.Seq2[tenure.Record, error] { return s.frail.List(ctx, prefix) })
}

// again yields what a listing yields once it has not broken.
func again[T any](ctx context.Context, n *tries, list func() iter.Seq2[T, error]) iter.Seq2[T, error] {
	type line struct {
		one T
		err error
	}
	return func(yield func(T, error) bool) {
		var all []line
		_ = insist(ctx, n, func() (broken error) {
			all = nil
			for one, err := range list() {
				all = append(all, line{one, err})
				if err != nil {
					broken = err
				}
			}
			return broken
		})
		for _, l := range all {
			if !yield(l.one, l.err) {
				return
			}
		}
	}
}

func (s *insistent) Close() error { return errors.Join(s.Store.Close(), s.frail.Close()) }

// serveTLS starts a server with a certificate for 127.0.0.1. It returns a file
// with the authority to trust.
func serveTLS(tb testing.TB, st store.Store, config *tls.Config) (front *httptest.Server, ca string) {
	tb.Helper()
	return serveTLSWith(tb, server.New(st, nil), config)
}

func serveTLSWith(tb testing.TB, srv *server.Server, config *tls.Config) (front *httptest.Server, ca string) {
	tb.Helper()
	front = httptest.NewUnstartedServer(srv)
	front.Config.ErrorLog = silent()
	if config != nil {
		front.TLS = config
	}
	front.StartTLS()
	tb.Cleanup(func() {
		srv.Drain()
		front.Close()
	})
	ca = filepath.Join(tb.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return front, ca
}

// overNetwork makes a store that reaches its server over a bad network, a store
// with a good connection to the same server, and the network.
func overNetwork(t *testing.T, secure bool) (far, near *Store, net *testenv.Network) {
	t.Helper()
	base := mem.New(nil)
	if secure {
		front, ca := serveTLS(t, base, nil)
		net = testenv.NewNetwork(t, front.Listener.Addr().String())
		return connect(t, "https://"+net.Addr, &Options{CAFile: ca}), connect(t, front.URL, &Options{CAFile: ca}), net
	}
	front := serve(t, base, nil)
	net = testenv.NewNetwork(t, front.Listener.Addr().String())
	return connect(t, "http://"+net.Addr, nil), connect(t, front.URL, nil), net
}

// TestAConnectionCutAfterTheRequestLeavesOneTruth cuts it after the server has
// carried out the request.
func TestAConnectionCutAfterTheRequestLeavesOneTruth(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near, net := overNetwork(t, secure)
			storetest.CutAfterRequest(t, far, near, net.LoseReply)
		})
	}
}

// TestAConnectionCutBeforeTheRequestLeavesNothing cuts it before the server
// gets the request.
func TestAConnectionCutBeforeTheRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near, net := overNetwork(t, secure)
			storetest.CutBeforeRequest(t, far, near, net.LoseRequests)
		})
	}
}

// TestAServerThatIsNotThereIsUnknown asks a port that nobody listens on.
func TestAServerThatIsNotThereIsUnknown(t *testing.T) {
	t.Parallel()
	storetest.NotThere(t, connect(t, "http://127.0.0.1:1", nil))
}
