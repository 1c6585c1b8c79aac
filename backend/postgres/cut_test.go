package postgres_test

import (
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
)

// overNetwork returns a store that reaches the server over a bad network, on
// one connection. near is another store with a good one.
func overNetwork(t *testing.T) (far, near *postgres.Store, net *testenv.Network) {
	t.Helper()
	near, name := fresh(t, postgres.Options{})
	addr := testenv.Postgres(t).Addr()
	net = testenv.NewNetwork(t, addr)
	p := pool(t, strings.Replace(server.url, addr, net.Addr, 1)+"&pool_max_conns=1")
	far = postgres.New(p, &postgres.Options{Schema: name})
	t.Cleanup(func() { far.Close(); p.Close() })
	return far, near, net
}

// TestAConnectionCutAfterTheRequestLeavesOneTruth: the server has carried out
// the request, but the client does not know. It learns so by asking again.
func TestAConnectionCutAfterTheRequestLeavesOneTruth(t *testing.T) {
	t.Parallel()
	far, near, net := overNetwork(t)
	storetest.CutAfterRequest(t, far, near, net.LoseReply)
}

// TestAConnectionCutBeforeTheRequestLeavesNothing: the server never saw the
// request.
func TestAConnectionCutBeforeTheRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	far, near, net := overNetwork(t)
	storetest.CutBeforeRequest(t, far, near, net.LoseRequests)
}

// TestAServerThatIsNotThereIsUnknown: the answer says so in time.
func TestAServerThatIsNotThereIsUnknown(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	storetest.NotThere(t, st)
}
