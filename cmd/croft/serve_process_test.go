//go:build linux

package main

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/internal/test/faultnet"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// serve starts a real croft serve on the station's store, and returns its
// address.
func (s *station) serve(name string, args ...string) (*exec.Cmd, string) {
	s.t.Helper()
	return s.listening(name, append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, args...)...)
}

// TestALeaseOutlivesTheServersThatAreKilled: two servers stand on one store.
// One after the other is killed and started again, while a client keeps a lease
// through the server that is there. The lease lives on in its first term.
func TestALeaseOutlivesTheServersThatAreKilled(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	const servers, kills = 2, 6
	var commands [servers]*exec.Cmd
	var addresses [servers]string // a server that was killed gets its port again
	start := func(i, round int) {
		commands[i], _ = s.serve(fmt.Sprintf("server%d-%d", i, round), "--listen", addresses[i])
	}
	for i := range servers {
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
		start(i, 0)
	}
	// The link is a balancer: it connects to a server that answers.
	link, err := faultnet.New(func() string {
		for _, address := range addresses {
			if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				_ = conn.Close()
				return address
			}
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	st, err := store.Open(t.Context(), "http://"+link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	client := croft.New(st, &croft.Options{Owner: "ann"})
	t.Cleanup(func() { _ = client.Close() })
	lease, err := client.Acquire(t.Context(), "jobs/long", &croft.LeaseOptions{TTL: time.Minute, MaxFailures: 1000})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := store.Open(t.Context(), filepath.Join(s.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close() })
	for round := range kills {
		i := round % servers
		if err := commands[i].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = commands[i].Wait()
		marker := fmt.Sprintf("round %d", round)
		testenv.Eventually(t, "the holder reports through the other server", func() error {
			return lease.Report(t.Context(), marker)
		})
		start(i, round+1)
	}
	rec, err := direct.Get(t.Context(), "jobs/long")
	if err != nil || rec.Token != lease.Token() || rec.Terms != 1 || rec.Progress != fmt.Sprintf("round %d", kills-1) {
		t.Errorf("the store has token %d in term %d (%s), %v; the lease has token %d", rec.Token, rec.Terms, rec.Progress, err, lease.Token())
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	for _, c := range commands { // they stop in order, though the client has streams open
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("after TERM: %v", err)
		}
	}
}
