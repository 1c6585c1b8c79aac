package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/testenv"
)

// network is a bad network before a server.
type network struct {
	tb    testing.TB
	proxy *toxiproxy.Proxy
}

func newNetwork(tb testing.TB, server *testenv.RedisServer) *network {
	tb.Helper()
	api := &toxiproxy.ApiServer{Collection: toxiproxy.NewProxyCollection(), Metrics: toxiproxy.NewMetricsContainer(nil)}
	silent(&api.Logger)
	n := &network{tb: tb, proxy: toxiproxy.NewProxy(api, tb.Name(), fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(tb)), server.Addr)}
	if err := n.proxy.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(n.proxy.Stop)
	return n
}

// silent makes a logger that has nowhere to write to.
func silent[T any](logger **T) { *logger = new(T) }

// client is one that reaches the server over the network and asks nothing twice by itself.
func (n *network) client() *goredis.Client {
	client := goredis.NewClient(&goredis.Options{Addr: n.proxy.Listen, MaxRetries: -1})
	n.tb.Cleanup(func() { client.Close() })
	return client
}

// during does something while data in one direction ("upstream", "downstream") is lost and connections are cut soon after.
func (n *network) during(direction string, do func()) {
	n.tb.Helper()
	toxic := fmt.Sprintf(`{"name":"cut","type":"timeout","stream":%q,"attributes":{"timeout":50}}`, direction)
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		n.tb.Fatal(err)
	}
	do()
	if err := n.proxy.Toxics.RemoveToxic(context.Background(), "cut"); err != nil {
		n.tb.Fatal(err)
	}
}

// replyLost does something whose reply is lost: what the server sends is dropped until it has done what reached it, and then all connections are cut.
func (n *network) replyLost(do func(), arrived func() error) {
	n.tb.Helper()
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"lost","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)); err != nil {
		n.tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	testenv.Eventually(n.tb, "the server does what reached it", arrived)
	n.proxy.Stop() // the network is down until the client has given up
	<-done
	if err := n.proxy.Toxics.RemoveToxic(context.Background(), "lost"); err != nil {
		n.tb.Fatal(err)
	}
	if err := n.proxy.Start(); err != nil {
		n.tb.Fatal(err)
	}
}
