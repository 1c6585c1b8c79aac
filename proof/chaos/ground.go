package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/link"
	"github.com/croft-dev/croft/internal/testenv"
)

// ground is where a run takes place: the servers of one backend, and how clients find them.
type ground struct {
	stand *stand

	mu    sync.Mutex
	apart bool         // nobody reaches any server
	links []*link.Link // all that were made
	// hosts are the addresses of the servers now. Clients reach each through a link of their own, so what changes here changes for the connections to come.
	hosts []string
	// urls tells, with the addresses of a client's links in the place of hosts, its store and the site of its places.
	urls func(hosts []string) (store, site string)
	env  []string // for clients
	// servers can be killed and run again, and keep what they confirmed.
	servers []server
	// failover replaces the lease store by a replica that has not got everything, between two calls of rewinding.
	failover func(lag time.Duration, rewinding func(begun bool))
}

// server is one that faults befall.
type server struct {
	name          string
	kill, restart func()
	pause, resume func() // nil if it cannot be paused
}

// host is where a server is now, "" while nobody reaches it.
func (g *ground) host(i int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.apart {
		return ""
	}
	return g.hosts[i]
}

// cutOff breaks all connections and lets none be made, until it is undone.
func (g *ground) cutOff(apart bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.apart = apart
	for _, l := range g.links {
		if apart {
			l.BreakAll()
		}
	}
}

// connect makes links to all servers, wherever they are when a connection is made.
func (g *ground) connect() (links []*link.Link, err error) {
	for i := range g.hosts {
		l, err := link.New(func() string { return g.host(i) })
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

// reach is where a client finds its store and its places through its links.
func (g *ground) reach(links []*link.Link) (store, site string) {
	hosts := make([]string, len(links))
	for i, l := range links {
		hosts[i] = l.Addr()
	}
	return g.urls(hosts)
}

func (g *ground) move(i int, addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts[i] = addr
}

// process is how a server of testenv is mistreated.
func process(name string, p *testenv.Process, restart func()) server {
	return server{name: name, kill: p.Kill, restart: restart, pause: func() { p.Pause(&stand{}) }, resume: p.Resume}
}

// Backend is one that chaos can be had on.
type Backend struct {
	// Name as in --backend.
	Name string
	// TTL of leases: long enough that a store whose clock shows whole seconds tells one moment from another.
	TTL time.Duration
	// Forgets says that a failover may lose what the lease store has confirmed.
	Forgets bool

	start func(ctx context.Context, s *stand) (*ground, error)
	open  opener
}

// Backends lists them. A new one is a file for its ground, one for its place, and a line here.
var Backends = []Backend{
	{Name: "dir", TTL: time.Second, start: groundDir, open: openFile},
	{Name: "sqlite", TTL: time.Second, start: groundSQLite, open: openRow},
	{Name: "postgres", TTL: time.Second, start: groundPostgres, open: openTable},
	{Name: "redis", TTL: time.Second, Forgets: true, start: groundRedis, open: openValue},
	{Name: "etcd", TTL: time.Second, start: groundEtcd, open: openEtcdKey},
	{Name: "s3", TTL: 2 * time.Second, start: groundS3, open: openObject},
	{Name: "gcs", TTL: 2 * time.Second, start: groundGCS, open: openBlob},
}

// Find finds a backend by its name.
func Find(name string) (Backend, bool) {
	i := slices.IndexFunc(Backends, func(b Backend) bool { return b.Name == name })
	if i < 0 {
		return Backend{}, false
	}
	return Backends[i], true
}
