package remote

import (
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/test/faultnet"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
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
func overMem(reach func(tb testing.TB, st store.Store) *Store) func(testing.TB) storetest.Harness {
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

func plainly(tb testing.TB, st store.Store) *Store { return connect(tb, serve(tb, st, nil).URL, nil) }

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

// TestConformanceThroughABadNetwork delays everything, through TLS.
func TestConformanceThroughABadNetwork(t *testing.T) {
	t.Parallel()
	storetest.Run(t, overMem(func(tb testing.TB, st store.Store) *Store {
		front, ca := serveTLS(tb, st, nil)
		link, err := faultnet.New(func() string { return front.Listener.Addr().String() })
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(link.Close)
		link.Set(faultnet.Fault{Kind: faultnet.Slow, Delay: 500 * time.Microsecond})
		return connect(tb, "https://"+link.Addr(), &Options{CAFile: ca})
	}))
}

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
