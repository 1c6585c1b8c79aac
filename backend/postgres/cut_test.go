package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// network is a bad network before the server.
type network struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	shared(t)
	api := &toxiproxy.ApiServer{Collection: toxiproxy.NewProxyCollection(), Metrics: toxiproxy.NewMetricsContainer(nil)}
	silent(&api.Logger)
	n := &network{t: t, proxy: toxiproxy.NewProxy(api, t.Name(), fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), testenv.Postgres(t).Addr())}
	if err := n.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.proxy.Stop)
	return n
}

// silent makes a logger that has nowhere to write to.
func silent[T any](logger **T) { *logger = new(T) }

// store is one that reaches the server over the network, on one connection.
func (n *network) store(schema string) *postgres.Store {
	p := pool(n.t, strings.Replace(server.url, testenv.Postgres(n.t).Addr(), n.proxy.Listen, 1)+"&pool_max_conns=1")
	st := postgres.New(p, &postgres.Options{Schema: schema})
	n.t.Cleanup(func() { st.Close(); p.Close() })
	return st
}

// during does something while data in one direction ("upstream", "downstream") is lost and connections are cut soon after.
func (n *network) during(direction string, do func()) {
	n.t.Helper()
	toxic := fmt.Sprintf(`{"name":"cut","type":"timeout","stream":%q,"attributes":{"timeout":50}}`, direction)
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		n.t.Fatal(err)
	}
	do()
	if err := n.proxy.Toxics.RemoveToxic(context.Background(), "cut"); err != nil {
		n.t.Fatal(err)
	}
}

// replyLost does something whose reply is lost: what the server sends is dropped until it has done what reached it, and then all connections are cut.
func (n *network) replyLost(do func(), arrived func() error) {
	n.t.Helper()
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"lost","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)); err != nil {
		n.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	testenv.Eventually(n.t, "the server does what reached it", arrived)
	n.proxy.Stop() // the network is down until the client has given up
	<-done
	if err := n.proxy.Toxics.RemoveToxic(context.Background(), "lost"); err != nil {
		n.t.Fatal(err)
	}
	if err := n.proxy.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// TestAConnectionCutAfterTheRequestLeavesOneTruth: the server has done what was asked, the client does not know, and learns it by asking again.
func TestAConnectionCutAfterTheRequestLeavesOneTruth(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	near, name := fresh(t, postgres.Options{})
	st := net.store(name)
	ctx := t.Context()
	mine := claim("cut/reply", "ann")
	hand := tenure.Request{Verb: tenure.Takeover, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"}
	for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Report, mine), then(tenure.Release, mine), hand} {
		warm := claim("cut/warm/"+string(tenure.NewSecret()), "ann")
		for _, req := range []tenure.Request{warm, then(tenure.Renew, warm), then(tenure.Release, warm)} { // a connection, and the statements prepared on it
			if a := storetest.Resolve(ctx, st, req); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		before, err := near.Get(ctx, mine.Key)
		if err != nil {
			t.Fatal(err)
		}
		var done tenure.Record
		var a store.Answer
		net.replyLost(func() { a = one(ctx, st, req) }, func() error {
			if done, err = near.Get(ctx, mine.Key); err == nil && fmt.Sprint(done) == fmt.Sprint(before) {
				err = errors.New("not yet")
			}
			return err
		})
		if !errors.Is(a.Err, store.ErrUnknown) || !a.Record.IsZero() {
			t.Fatalf("%s whose reply was lost: %v, %+v; want unknown", req.Verb, a.Err, a.Record)
		}
		again := storetest.Resolve(ctx, st, req)
		if again.Err != nil || again.Record.Token != done.Token || again.Record.Terms != done.Terms || again.Record.State != done.State {
			t.Fatalf("%s again: %v, token %d in term %d (%s); the server had token %d in term %d (%s)",
				req.Verb, again.Err, again.Record.Token, again.Record.Terms, again.Record.State, done.Token, done.Terms, done.State)
		}
	}
}

// TestAConnectionCutBeforeTheRequestLeavesNothing.
func TestAConnectionCutBeforeTheRequestLeavesNothing(t *testing.T) {
	net := newNetwork(t)
	near, name := fresh(t, postgres.Options{})
	st := net.store(name)
	ctx := t.Context()
	mine := claim("cut/request", "ann")
	must(t, st, claim("cut/warm", "ann"))
	net.during("upstream", func() {
		if a := one(ctx, st, mine); !errors.Is(a.Err, store.ErrUnknown) {
			t.Fatalf("a request that was lost: %v, want unknown", a.Err)
		}
	})
	if rec, err := near.Get(ctx, mine.Key); err != nil || !rec.IsZero() {
		t.Fatalf("a request that never arrived left %+v, %v", rec, err)
	}
	if a := storetest.Resolve(ctx, st, mine); a.Err != nil || a.Record.Terms != 1 {
		t.Fatalf("asked again: %v in term %d", a.Err, a.Record.Terms)
	}
}

// TestAServerThatIsNotThereIsUnknown, and says so in time.
func TestAServerThatIsNotThereIsUnknown(t *testing.T) {
	st, err := store.Open(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if a := one(ctx, st, claim("a/b", "ann")); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("Apply: %v", a.Err)
	}
	if _, err := st.Get(ctx, "a/b"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("Get: %v", err)
	}
	if _, err := st.Now(ctx); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("Now: %v", err)
	}
	if _, err := st.(store.Watcher).Watch(ctx, "a/b"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("Watch: %v", err)
	}
	if _, err := st.(store.Sweeper).Sweep(ctx); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("Sweep: %v", err)
	}
	for _, err := range st.List(ctx, "") {
		if !errors.Is(err, store.ErrUnknown) {
			t.Errorf("List: %v", err)
		}
	}
	if err := st.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
