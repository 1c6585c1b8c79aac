//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/faultnet"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// serve starts a real croft serve on the station's store, and returns its
// address.
func (s *station) serve(name string, args ...string) (*exec.Cmd, string) {
	s.t.Helper()
	return s.listening(name, append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, args...)...)
}

// pair is two servers on one store, and a balancer before them. It connects to
// a server that answers.
type pair struct {
	*station
	args     []string
	commands [2]*exec.Cmd
	address  [2]string // a server that was killed gets its port again
	url      string    // of the balancer
}

// servePair starts two servers.
func (s *station) servePair(args ...string) *pair {
	s.t.Helper()
	p := &pair{station: s, args: args}
	for i := range p.commands {
		p.address[i] = fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(s.t))
		p.start(i, 0)
	}
	link, err := faultnet.New(func() string {
		for _, address := range p.address {
			if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				_ = conn.Close()
				return address
			}
		}
		return ""
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(link.Close)
	p.url = "http://" + link.Addr()
	return p
}

func (p *pair) start(i, round int) {
	p.t.Helper()
	p.commands[i], _ = p.serve(fmt.Sprintf("server%d-%d", i, round), append(p.args, "--listen", p.address[i])...)
}

func (p *pair) kill(i int) {
	p.t.Helper()
	if err := p.commands[i].Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.commands[i].Wait()
}

// TestALeaseOutlivesTheServersThatAreKilled: two servers stand on one store.
// One after the other is killed and started again, while a client keeps a lease
// through the server that is there. The lease lives on in its first term.
func TestALeaseOutlivesTheServersThatAreKilled(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	const kills = 6
	p := s.servePair()
	st, err := store.Open(t.Context(), p.url)
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
	if page, err := http.Get(p.url + "/ui/"); err != nil {
		t.Error(err)
	} else {
		text, err := io.ReadAll(page.Body)
		_ = page.Body.Close()
		if err != nil || page.StatusCode != http.StatusOK || !strings.Contains(string(text), "jobs/long") {
			t.Errorf("the page: %s %s, %v", page.Status, text, err)
		}
	}
	direct, err := store.Open(t.Context(), filepath.Join(s.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close() })
	for round := range kills {
		i := round % 2
		p.kill(i)
		marker := fmt.Sprintf("round %d", round)
		testenv.Eventually(t, "the holder reports through the other server", func() error {
			return lease.Report(t.Context(), marker)
		})
		p.start(i, round+1)
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
	for _, c := range p.commands { // they stop in order, though the client has streams open
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("after TERM: %v", err)
		}
	}
}

// TestItemsOutliveTheServersThatAreKilled: workers go on through two servers on
// one PostgreSQL, one after the other of which is killed. No item is worked on
// by two at a time. Every item is done, and its effect is there once.
func TestItemsOutliveTheServersThatAreKilled(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	database := testenv.Postgres(t).Database(t)
	p := s.servePair("--store", database)
	const kills, batch, workers = 5, 12, 3
	var mu sync.Mutex // guards the two below
	running, began := map[work.ID]bool{}, map[work.ID]fence.Token{}
	handle := func(ctx context.Context, job *work.Job) (work.Result, error) {
		id := job.Item().ID
		mu.Lock()
		if running[id] {
			t.Errorf("item %s is worked on twice at a time", id)
		}
		running[id], began[id] = true, job.Item().Record.Token
		mu.Unlock()
		err := job.Report(ctx, "half")
		mu.Lock()
		running[id] = false
		mu.Unlock()
		return work.Result{Body: []byte(id), Effects: []work.Emission{{Name: "done"}}}, err
	}
	open := func(url string) work.Ledger {
		l, err := work.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	direct := open(database)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range workers {
		l := open(p.url)
		all.Go(func() {
			o := &work.Options{Slots: 4, TTL: 5 * time.Minute, Poll: 100 * time.Millisecond, CallTimeout: testenv.Patience}
			if err := work.Run(ctx, l, map[string]work.Handler{"q": handle}, o); err != nil {
				t.Errorf("a worker: %v", err)
			}
		})
	}
	added := map[work.ID]bool{}
	l := open(p.url)
	for round := range kills {
		for range batch {
			add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"}
			added[add.ID] = true
			testenv.Eventually(t, "an item is added", func() error { return l.Apply(t.Context(), []work.Request{add})[0].Err })
		}
		p.kill(round % 2)
		testenv.Eventually(t, "all items are done", func() error {
			for it, err := range direct.List(t.Context(), work.Query{States: []work.State{work.Waiting, work.Running}}) {
				if err != nil {
					return err
				}
				mu.Lock()
				known := began[it.ID] == it.Record.Token
				mu.Unlock()
				if it.State == work.Running && !known && time.Since(it.Record.Acquired) > testenv.Patience/2 {
					// The server was killed with a claim on its way, and the
					// worker has asked again before the claim took effect.
					direct.Apply(t.Context(), []work.Request{{
						Verb: work.Reassign, ID: it.ID, Secret: tenure.NewSecret(), Owner: it.Record.Owner, Actor: "test", Note: "nobody has it",
					}})
				}
				return fmt.Errorf("item %s is %s in attempt %d", it.ID, it.State, it.Attempts)
			}
			return nil
		})
		p.start(round%2, round+1)
	}
	stop()
	all.Wait()
	for id := range added {
		it, err := direct.Get(t.Context(), id)
		if err != nil || it.State != work.Done || string(it.Result) != string(id) {
			t.Errorf("item %s is %s with result %q: %v", id, it.State, it.Result, err)
		}
		effects := 0
		for _, err := range direct.Effects(t.Context(), work.EffectQuery{Item: id}) {
			if effects++; err != nil {
				t.Error(err)
			}
		}
		if effects != 1 {
			t.Errorf("item %s has %d effects", id, effects)
		}
	}
}
