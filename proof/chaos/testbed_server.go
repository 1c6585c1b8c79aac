package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	_ "github.com/croft-dev/croft/backend/remote" // clients open it by URL
	"github.com/croft-dev/croft/internal/test/testenv"
	croftserver "github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// askedServer is the environment variable that makes a process a Croft server.
const askedServer = "CROFT_CHAOS_SERVER"

// serverBrief is the job description of a Croft server.
type serverBrief struct {
	Store, Addr string
	CallTimeout time.Duration
}

// serve serves a store and its ledger until the process is killed.
func (b serverBrief) serve() error {
	ctx := context.Background()
	st, err := insist(ctx, func() (store.Store, error) { return store.Open(ctx, b.Store) })
	if err != nil {
		return err
	}
	ledger, err := insist(ctx, func() (work.Ledger, error) { return work.Open(ctx, b.Store) })
	if err != nil {
		return err
	}
	o := &croftserver.Options{Ledger: ledger, CallTimeout: b.CallTimeout}
	return http.ListenAndServe(b.Addr, croftserver.New(st, o))
}

// testbedServer is two Croft servers on one PostgreSQL, which also has the
// resources. About half of the clients use each of them. While one is dead, its
// clients' new connections go to the other, as behind a balancer.
func testbedServer(ctx context.Context, s *stand) (*testbed, error) {
	g, err := testbedPostgres(ctx, s)
	if err != nil {
		return nil, err
	}
	database := g.hosts[0]
	direct, _ := g.urls([]string{database})
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var addrs []string
	for range 2 {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(s)))
	}
	for i, addr := range addrs {
		text, err := json.Marshal(serverBrief{direct, addr, time.Second})
		if err != nil {
			return nil, err
		}
		ready := func() error {
			resp, err := http.Get("http://" + addr + "/healthz")
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		p := testenv.Start(s, "a Croft server", func() *exec.Cmd {
			c := exec.Command(self)
			c.Env = append(os.Environ(), askedServer+"="+string(text))
			return c
		}, ready)
		one := process(fmt.Sprintf("server %d", i+1), p, func() {
			p.Run(s, ready)
			g.move(i, addr)
		})
		one.often = 8
		one.kill = func() {
			p.Kill()
			g.move(i, addrs[1-i])
		}
		g.servers = append(g.servers, one)
	}
	g.gap = 500 * time.Millisecond // so that one dies about every second
	base := g.urls
	g.hosts = slices.Concat(addrs, []string{database})
	g.urls = func(hosts []string) (string, string) {
		_, site := base(hosts[2:])
		// The ports of the links are as good as random.
		mine := hosts[0]
		if strings.ContainsAny(mine[len(mine)-1:], "13579") {
			mine = hosts[1]
		}
		return (&url.URL{Scheme: "http", Host: mine}).String(), site
	}
	return g, nil
}
