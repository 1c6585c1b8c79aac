package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/test/faultnet"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// testbed is the servers of one backend, and the addresses at which clients
// find them.
type testbed struct {
	stand *stand

	mu    sync.Mutex
	apart bool             // all servers are unreachable
	links []*faultnet.Link // every link ever made
	// hosts are the servers' current addresses. Each client reaches each server
	// through a link of its own. A changed address applies to new connections.
	hosts []string
	// urls returns the store URL and the site of the resources. It takes the
	// addresses of a client's links, one for each host.
	urls func(hosts []string) (store, site string)
	env  []string // environment of clients
	// gap is the longest time between two faults of servers; default 4 TTLs.
	gap time.Duration
	// servers may be killed and restarted. They keep confirmed changes.
	servers []server
	// failover replaces the lease store by a replica that lags behind. It calls
	// rewinding before and after the moment of the loss.
	failover func(lag time.Duration, rewinding func(begun bool))
}

// server is a server that faults can hit.
type server struct {
	name          string
	often         int // how often it is killed, as in fault.often; default 2
	kill, restart func()
	pause, resume func() // nil if it cannot be paused
}

// host returns the current address of a server, "" while it is unreachable.
func (g *testbed) host(i int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.apart {
		return ""
	}
	return g.hosts[i]
}

// cutOff makes all servers unreachable: it breaks all connections, and no new
// one succeeds. cutOff(false) ends that.
func (g *testbed) cutOff(apart bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.apart = apart
	for _, l := range g.links {
		if apart {
			l.BreakAll()
		}
	}
}

// connect makes links to all servers. A link looks up the server's address for
// each new connection.
func (g *testbed) connect() (links []*faultnet.Link, err error) {
	for i := range g.hosts {
		l, err := faultnet.New(func() string { return g.host(i) })
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links = append(g.links, links...)
	return links, nil
}

// reach returns the store URL and the site for a client with these links.
func (g *testbed) reach(links []*faultnet.Link) (store, site string) {
	hosts := make([]string, len(links))
	for i, l := range links {
		hosts[i] = l.Addr()
	}
	return g.urls(hosts)
}

func (g *testbed) move(i int, addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts[i] = addr
}

// process describes how faults kill and pause a server of testenv.
func process(name string, p *testenv.Process, restart func()) server {
	return server{name: name, kill: p.Kill, restart: restart, pause: func() { p.Pause(&stand{}) }, resume: p.Resume}
}

// Backend is a backend that chaos can run on.
type Backend struct {
	// Name is the name in --backend.
	Name string
	// TTL of leases. If the store's clock shows whole seconds, the TTL must be
	// longer than one.
	TTL time.Duration
	// Forgets says that a failover may lose changes that the lease store has
	// confirmed.
	Forgets bool

	start func(ctx context.Context, s *stand) (*testbed, error)
	open  opener
}

// Backends lists all backends. To add one, write a file for its testbed and one
// for its resource, and add a line here.
var Backends = []Backend{
	{Name: "dir", TTL: time.Second, start: testbedDir, open: openFile},
	{Name: "sqlite", TTL: time.Second, start: testbedSQLite, open: openRow},
	{Name: "postgres", TTL: time.Second, start: testbedPostgres, open: openTable},
	{Name: "redis", TTL: time.Second, Forgets: true, start: testbedRedis, open: openValue},
	{Name: "etcd", TTL: time.Second, start: testbedEtcd, open: openEtcdKey},
	{Name: "s3", TTL: 2 * time.Second, start: testbedS3, open: openObject},
	{Name: "gcs", TTL: 2 * time.Second, start: testbedGCS, open: openBlob},
	{Name: "server", TTL: time.Second, start: testbedServer, open: openTable},
}

// Find returns the backend of that name.
func Find(name string) (Backend, bool) {
	i := slices.IndexFunc(Backends, func(b Backend) bool { return b.Name == name })
	if i < 0 {
		return Backend{}, false
	}
	return Backends[i], true
}
