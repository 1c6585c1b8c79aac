package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// prometheusAt starts a real Prometheus that scrapes a target every second, and
// returns its address. A scrape times out after the same second. So a shorter
// interval would see nothing of a process that stalls.
func prometheusAt(t *testing.T, target string) string {
	t.Helper()
	program := testenv.Program(t, "prometheus", "prometheus")
	dir, addr := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: croft\n    static_configs: [{targets: [%q]}]\n", strings.TrimPrefix(target, "http://"))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Start(t, "prometheus", func() *exec.Cmd {
		return exec.Command(program, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr, "--log.level", "error")
	}, func() error {
		resp, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return "http://" + addr
}

// ask returns the answer of Prometheus to a query, by labels: the last number
// since a moment. Panels also ask for a stretch of time. One late scrape makes
// a gap in a panel, but does not make it empty.
func ask(server, query string, since time.Time) (map[string]string, error) {
	unix := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	resp, err := http.Get(server + "/api/v1/query_range?" + url.Values{
		"query": {query}, "start": {unix(since)}, "end": {unix(time.Now())}, "step": {"1s"},
	}.Encode())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	found := map[string]string{}
	for _, r := range answer.Data.Result {
		for _, v := range r.Values {
			if value := fmt.Sprint(v[1]); value != "NaN" {
				found[fmt.Sprint(r.Metric)] = value
			}
		}
	}
	return found, nil
}

// incidents makes everything happen that the dashboard shows, again and again
// until ctx ends.
func incidents(ctx context.Context, g *gated, m *Metrics, st *flaky) {
	a := croft.New(st, &croft.Options{Observe: m.Observe, Owner: "a"})
	defer a.Close()
	b := croft.New(st, &croft.Options{Observe: m.Observe, Owner: "b"})
	defer b.Close()
	// Work in progress has an age while its lease lives. This lease outlives
	// every stall and outage.
	working, err := a.Acquire(ctx, "orders/working", &croft.LeaseOptions{TTL: 10 * time.Minute})
	if err != nil {
		return
	}
	_ = working.Report(ctx, "half")
	defer func() { _ = working.Release(context.WithoutCancel(ctx)) }()
	for i := 0; ctx.Err() == nil; i++ {
		file := Artifact(&guardtest.Memory{}, m.Write)
		kept, err := a.Acquire(ctx, "orders/kept", &croft.LeaseOptions{TTL: time.Second, WaitFor: time.Minute})
		if err != nil {
			return
		}
		_ = kept.Report(ctx, "half")
		_, _ = b.Acquire(ctx, "orders/kept", &croft.LeaseOptions{WaitFor: 50 * time.Millisecond}) // not its turn
		_ = a.Do(ctx, "orders/quick", nil, func(context.Context, *croft.Lease) error { return nil })
		took, err := b.Takeover(ctx, "orders/taken", croft.ByHand{Note: "an incident"})
		if err == nil {
			_, _ = file.Write(ctx, took.Deed.Stamp(), strings.NewReader("x"))
			_, _ = b.Revoke(ctx, "orders/taken", croft.ByHand{Note: "over"})
			_, _ = b.Renew(ctx, took.Deed, false) // not owned
		}
		if next, err := a.Acquire(ctx, "orders/taken", nil); err == nil {
			_, _ = file.Raise(ctx, next.Stamp())
			m.Observe(croft.Event{Kind: croft.EventRaised, Key: next.Key(), Token: next.Token(), Target: file.Target()})
			_, _ = file.Write(ctx, took.Deed.Stamp(), strings.NewReader("x")) // stale
			_ = next.Release(ctx)
			_ = g.put(fmt.Sprintf("/orders/more%d", i), next.Stamp())
			_ = g.put(fmt.Sprintf("/down/orders/less%d", i), next.Stamp())
			m.Gate(gate.Event{Kind: gate.Unsure, Key: next.Key(), Token: next.Token()})
			m.Gate(gate.Event{
				Kind: gate.Observed, Key: next.Key(), Token: took.Deed.Token, Status: http.StatusConflict, Code: "stale",
			})
		}
		m.Observe(croft.Event{Kind: croft.EventPaused, Took: time.Second})
		st.set(true)
		var waiting sync.WaitGroup
		waiting.Go(func() { // its outcome is unknown until the store is back
			if l, err := b.Acquire(ctx, "orders/doubt", &croft.LeaseOptions{WaitFor: time.Minute}); err == nil {
				_ = l.Release(ctx)
			}
		})
		select {
		case <-kept.Done(): // the lease could not be renewed
		case <-ctx.Done():
		}
		st.set(false)
		waiting.Wait()
		held, err := a.Acquire(ctx, "orders/kept", &croft.LeaseOptions{TTL: time.Second, WaitFor: time.Minute})
		if err != nil {
			return
		}
		select {
		case <-held.Done():
		case <-time.After(time.Second): // time for some renewals
		case <-ctx.Done():
		}
		_ = held.Release(ctx)
	}
}

// TestEveryPanelShowsSomethingInAnIncident: a real Prometheus scrapes a client
// under contention and a proxy. It must answer every query of the dashboard
// with numbers.
func TestEveryPanelShowsSomethingInAnIncident(t *testing.T) {
	m := New(nil)
	ledger := NewLedger(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, ledger)
	// One scrape at a time: those that Prometheus has given up on would pile
	// up.
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 1}))
	defer page.Close()
	began := time.Now()
	server := prometheusAt(t, page.URL)

	g := newGated(t, m)
	g.everything()
	ctx, stop := context.WithCancel(context.Background())
	var happening sync.WaitGroup
	happening.Go(func() { incidents(ctx, g, m, &flaky{Store: mem.New(nil)}) })
	happening.Go(func() {
		l := ledger.Ledger(mem.NewLedger(nil))
		for ctx.Err() == nil {
			if err := round(ctx, l, ledger); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			_ = clock.Sleep(ctx, time.Second)
		}
	})
	defer happening.Wait()
	defer stop()

	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			query := strings.NewReplacer("$namespace", ".*", "$queue", ".*", "$__rate_interval", "30s").Replace(target.Expr)
			var found map[string]string
			eventually(t, fmt.Sprintf("a number in panel %q: %s", panel.Title, query), func() bool {
				var err error
				if found, err = ask(server, query, began); err != nil {
					t.Fatalf("panel %q: %s: %v", panel.Title, query, err)
				}
				return len(found) > 0
			})
			for labels := range found {
				for _, name := range legendNames(target.LegendFormat) {
					if !strings.Contains(labels, name+":") {
						t.Errorf("panel %q: its legend names %s, the series have %s", panel.Title, name, labels)
					}
				}
			}
			t.Logf("%s: %v", panel.Title, found)
		}
	}
	// These queries fill the lists of namespaces and queues to choose from.
	for _, choice := range []string{`croft_leases_held{namespace="orders"}`, `croft_work_items{queue="pages"}`} {
		if found, err := ask(server, choice, began); err != nil || len(found) == 0 {
			t.Errorf("nothing to choose from %s: %v, %v", choice, found, err)
		}
	}
}
