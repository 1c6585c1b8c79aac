package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/tenure"
)

// scaleWorkloads measure what one more lease, waiter or client costs. They are
// not ratios to a peer, so they have a page of their own: bench -scale.
var scaleWorkloads = []workload{
	{
		"scale-leases", "One more idle lease",
		"One client holds many leases, and nothing else happens.",
		scaleLeases,
	},
	{
		"scale-waiters", "One more waiter",
		"One client holds many keys. In another, one goroutine waits for each of them.",
		scaleWaiters,
	},
	{
		"scale-clients", "One more client of a server",
		"Each client has a lease of its own, with a TTL of 30 s. All are goroutines of one\n" +
			"process; the server is another process, and its store is a SQLite file.",
		scaleClients,
	},
}

// scaleTTL is the TTL of leases here. They are renewed every 5 s.
const scaleTTL = 15 * time.Second

// tally counts what a client tells of its calls.
type tally struct {
	calls, requests, lost atomic.Int64
	mu                    sync.Mutex
	renewals              []time.Duration // how long each call with renewals took
}

func (c *tally) observe(e croft.Event) {
	switch e.Kind {
	case croft.EventCall:
		c.calls.Add(1)
		c.requests.Add(int64(e.Count))
		if e.Verb == tenure.Renew {
			c.mu.Lock()
			c.renewals = append(c.renewals, e.Took)
			c.mu.Unlock()
		}
	case croft.EventLost:
		c.lost.Add(1)
	}
}

// renewalsTaken returns the median and the 99th percentile of the time that
// calls with renewals took, and forgets them.
func (c *tally) renewalsTaken() (half, p99 time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.renewals
	c.renewals = nil
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// heap returns the bytes of live objects and stacks of this process.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// scaleLeases holds many leases on each store.
func scaleLeases(ctx context.Context, b *bench) error {
	stores, err := b.telling(ctx)
	if err != nil {
		return err
	}
	n := b.count(2000)
	t := b.newTable()
	for _, st := range stores {
		seen := &tally{}
		client, err := croft.Open(ctx, st.url, &croft.Options{Observe: seen.observe})
		if err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		before := heap()
		leases, err := hold(ctx, client, "scale/held", n)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", st.name, err), client.Close())
		}
		memory := heap() - before
		values, err := b.atRest(ctx, seen, st.cpu)
		if err != nil {
			return errors.Join(err, client.Close())
		}
		values["memory"] = float64(memory) / float64(n)
		t.Rows = append(t.Rows, row{st.name, values})
		runtime.KeepAlive(leases)
		if err := client.Close(); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	t.columns = []column{
		{"memory", "client memory each", asBytes},
		{"calls", "calls of the store/s", digits},
		{"requests", "requests/s", digits},
		{"client", "client cores", asCores},
		{"server", "server cores", asCores},
		{"lost", "lost", digits},
	}
	t.Notes = append(t.Notes, fmt.Sprintf(
		"%d leases with a TTL of %s, so each is renewed every %s; with the default TTL of a minute, divide by 4",
		n, scaleTTL, scaleTTL/3,
	), "SQLite and a directory are in the client's process")
	b.add(t)
	return nil
}

// scaleWaiters lets goroutines wait on each store.
func scaleWaiters(ctx context.Context, b *bench) error {
	stores, err := b.telling(ctx)
	if err != nil {
		return err
	}
	n := b.count(1000)
	t := b.newTable()
	for _, st := range stores {
		values, err := b.waiters(ctx, st, n)
		if err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		t.Rows = append(t.Rows, row{st.name, values})
	}
	t.columns = []column{
		{"memory", "client memory each", asBytes},
		{"goroutines", "goroutines each", digits},
		{"calls", "calls of the store/s", digits},
		{"client", "client cores", asCores},
		{"server", "server cores", asCores},
	}
	t.Notes = append(t.Notes,
		fmt.Sprintf("%d waiters; the goroutine that waits is one of those counted", n),
		"client and server cores include those for the renewals of the holders",
	)
	b.add(t)
	return nil
}

// waiters measures n goroutines that wait for n held keys.
func (b *bench) waiters(ctx context.Context, st namedStore, n int) (map[string]float64, error) {
	holder, err := croft.Open(ctx, st.url, nil)
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	seen := &tally{}
	waiter, err := croft.Open(ctx, st.url, &croft.Options{Observe: seen.observe})
	if err != nil {
		return nil, err
	}
	defer waiter.Close()
	if _, err := hold(ctx, holder, "scale/waited", n); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before Wait
	before, routines := heap(), runtime.NumGoroutine()
	for i := range n {
		wg.Go(func() {
			_, _ = waiter.Acquire(
				ctx, fmt.Sprintf("scale/waited/%d", i),
				&croft.LeaseOptions{TTL: scaleTTL, WaitFor: croft.Forever},
			)
		})
	}
	// By then each waiter has asked, and listens.
	for seen.requests.Load() < int64(n) {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, b.keepFor/4); err != nil {
		return nil, err
	}
	memory, more := heap()-before, runtime.NumGoroutine()-routines
	values, err := b.atRest(ctx, seen, st.cpu)
	if err != nil {
		return nil, err
	}
	values["memory"] = float64(memory) / float64(n)
	values["goroutines"] = float64(more) / float64(n)
	return values, nil
}

// scaleClients connects more and more clients to one server.
func scaleClients(ctx context.Context, b *bench) error {
	program, _, err := b.buildCroft(ctx)
	if err != nil {
		return err
	}
	dir, err := b.folder("scale-server")
	if err != nil {
		return err
	}
	srv, err := startServer(ctx, program, "sqlite://"+dir+"/croft.db")
	if err != nil {
		return err
	}
	defer srv.stop()
	var clients []*croft.Client
	defer func() {
		_ = together(len(clients), func(i int) error { return clients[i].Close() })
	}()
	seen := &tally{}
	t := b.newTable()
	empty := srv.memory()
	for _, n := range []int{500, 1000, 2000} {
		n = b.count(n)
		more := make([]*croft.Client, max(n-len(clients), 0))
		err := together(len(more), func(i int) error {
			client, err := croft.Open(ctx, srv.url, &croft.Options{Observe: seen.observe})
			if err != nil {
				return err
			}
			more[i] = client
			_, err = client.Acquire(
				ctx, fmt.Sprintf("scale/client/%d", len(clients)+i), &croft.LeaseOptions{TTL: 30 * time.Second},
			)
			return err
		})
		clients = append(clients, slices.DeleteFunc(more, func(c *croft.Client) bool { return c == nil })...)
		if err != nil {
			return err
		}
		// All clients began at once. Their first renewals still come together.
		if err := pause(ctx, b.keepFor); err != nil {
			return err
		}
		seen.renewalsTaken()
		calls, err := srv.storeCalls()
		if err != nil {
			return err
		}
		values, err := b.atRest(ctx, seen, srv.cpu)
		if err != nil {
			return err
		}
		now, err := srv.storeCalls()
		if err != nil {
			return err
		}
		values["calls"] = float64(now-calls) / b.keepFor.Seconds()
		half, p99 := seen.renewalsTaken()
		values["half"], values["p99"] = float64(half), float64(p99)
		values["memory"] = float64(srv.memory()-empty) / float64(n)
		t.Rows = append(t.Rows, row{fmt.Sprintf("%d clients", n), values})
	}
	t.columns = []column{
		{"memory", "server memory each", asBytes},
		{"requests", "requests/s", digits},
		{"calls", "calls of the store/s", digits},
		{"half", "renewal: median", asTime},
		{"p99", "99 of 100", asTime},
		{"server", "server cores", asCores},
		{"client", "clients' cores", asCores},
		{"lost", "lost", digits},
	}
	t.Notes = append(t.Notes, "memory is resident memory of the server's process beyond that without clients")
	b.add(t)
	return nil
}

// hold acquires n keys with 64 goroutines.
func hold(ctx context.Context, client *croft.Client, prefix string, n int) ([]*croft.Lease, error) {
	leases := make([]*croft.Lease, n)
	const hands = 64
	err := together(hands, func(w int) (err error) {
		for i := w; i < n; i += hands {
			key := fmt.Sprintf("%s/%d", prefix, i)
			if leases[i], err = client.Acquire(ctx, key, &croft.LeaseOptions{TTL: scaleTTL}); err != nil {
				return err
			}
		}
		return nil
	})
	return leases, err
}

// atRest waits, and returns the calls and CPU time that this took per second.
func (b *bench) atRest(
	ctx context.Context, seen *tally, server func() time.Duration,
) (map[string]float64, error) {
	calls, requests := seen.calls.Load(), seen.requests.Load()
	client, other, from := cpuTime(), server(), time.Now()
	if err := pause(ctx, b.keepFor); err != nil {
		return nil, err
	}
	s := time.Since(from).Seconds()
	values := map[string]float64{
		"calls":    float64(seen.calls.Load()-calls) / s,
		"requests": float64(seen.requests.Load()-requests) / s,
		"client":   (cpuTime() - client).Seconds() / s,
		"lost":     float64(seen.lost.Load()),
	}
	if used := server() - other; used > 0 {
		values["server"] = used.Seconds() / s
	}
	return values, nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// asBytes formats a number of bytes.
func asBytes(v float64) string {
	if v < 0 {
		v = 0
	}
	return fmt.Sprintf("%.1f KB", v/1000)
}

// The page has the figures between these lines. People write the rest.
const (
	figuresBegin = "<!-- figures: written by bench -scale -->"
	figuresEnd   = "<!-- end of figures -->"
)

// writeFigures replaces the figures of a page.
func (r *report) writeFigures(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, begun := strings.Cut(string(text), figuresBegin)
	_, tail, ended := strings.Cut(rest, figuresEnd)
	if !begun || !ended {
		return fmt.Errorf("%s has no lines %q and %q; figures go between them", path, figuresBegin, figuresEnd)
	}
	var page strings.Builder
	page.WriteString(head + figuresBegin + "\n")
	r.writeMachine(&page)
	r.writeTables(&page, "### ")
	page.WriteString("\n" + figuresEnd + tail)
	return os.WriteFile(path, []byte(page.String()), 0o644)
}
