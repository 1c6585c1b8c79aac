package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// scrape returns what Prometheus would see, by name.
func scrape(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	return scrapeOf(t, m)
}

// value returns the sum of the series with these labels, given as "name=value",
// or -1 if there is none. For a histogram it returns the number of
// observations.
func value(f *dto.MetricFamily, labels ...string) float64 {
	sum, found := 0.0, false
	for _, m := range f.GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if slices.ContainsFunc(labels, func(want string) bool { return !slices.Contains(have, want) }) {
			continue
		}
		found = true
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	if !found {
		return -1
	}
	return sum
}

// flaky is a store that can be made unreachable.
type flaky struct {
	store.Store
	mu   sync.Mutex
	down bool
}

func (f *flaky) set(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *flaky) Apply(ctx context.Context, batch []tenure.Request) []store.Answer {
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		return store.Failed(len(batch), errors.New("connection refused"))
	}
	return f.Store.Apply(ctx, batch)
}

// Watch breaks at once, as if the connection were lost.
func (f *flaky) Watch(context.Context, string) (<-chan struct{}, error) {
	c := make(chan struct{})
	close(c)
	return c, nil
}

// TestEveryDocumentedMetricIsSeen: a client under contention shows every metric
// with a plausible value, after everything that can happen to a lease.
func TestEveryDocumentedMetricIsSeen(t *testing.T) {
	t.Parallel()
	m := New(nil)
	st := &flaky{Store: mem.New(nil)}
	c := croft.New(st, &croft.Options{Observe: m.Observe, Owner: "a"})
	defer c.Close()
	other := croft.New(st, &croft.Options{Observe: m.Observe, Owner: "b"})
	defer other.Close()
	ctx := t.Context()
	file := Artifact(&guardtest.Memory{}, m.Write)
	const ttl = 9 * time.Second // long enough to renew in time on a machine that stalls

	// Contention: ten workers on one key.
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			err := c.Do(ctx, "orders/one", &croft.LeaseOptions{WaitFor: croft.Forever}, func(context.Context, *croft.Lease) error {
				time.Sleep(5 * time.Millisecond)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()

	l, err := c.Acquire(ctx, "orders/two", &croft.LeaseOptions{TTL: ttl, Guards: []guard.Guard{file}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Acquire(ctx, "orders/two", &croft.LeaseOptions{WaitFor: 50 * time.Millisecond}); !errors.Is(err, croft.ErrHeld) {
		t.Fatal(err)
	}
	if err := l.Report(ctx, "half"); err != nil {
		t.Fatal(err)
	}
	reported := time.Now()
	eventually(t, "a renewal", func() bool { return value(scrape(t, m)["croft_renew_margin_ratio"], "namespace=orders") >= 1 })
	if age, since := value(scrape(t, m)["croft_progress_age_seconds"], "namespace=orders"), time.Since(reported).Seconds(); age <= 0 || age > since+1 {
		t.Errorf("the progress is %v s old, want %v", age, since)
	}
	st.set(true)
	<-l.Done()
	st.set(false)
	next, err := other.Acquire(ctx, "orders/two", &croft.LeaseOptions{TTL: time.Minute, WaitFor: time.Minute, Guards: []guard.Guard{file}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(ctx, next.Stamp(), strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(ctx, l.Stamp(), strings.NewReader("old")); !errors.Is(err, fence.ErrStale) {
		t.Fatal(err)
	}
	if err := l.Release(ctx); !errors.Is(err, croft.ErrNotOwned) {
		t.Fatal(err)
	}
	// An unknown outcome, and its resolution.
	st.set(true)
	asked := make(chan error)
	go func() {
		_, err := other.Acquire(ctx, "orders/three", &croft.LeaseOptions{WaitFor: time.Minute})
		asked <- err
	}()
	eventually(t, "an unknown outcome", func() bool { return value(scrape(t, m)["croft_unknown_outcomes_total"], "operation=acquire") >= 1 })
	st.set(false)
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if err := next.Report(ctx, "more"); err != nil { // now there is progress
		t.Fatal(err)
	}

	newGated(t, m).everything()
	m.Observe(croft.Event{Kind: croft.EventPaused, Took: time.Second}) // no machine stops for a test
	eventually(t, "the answer of the proxy", func() bool { return scrape(t, m)["croft_http_answer_seconds"] != nil })

	found := scrape(t, m)
	for _, want := range []struct {
		name, labels string
		least, most  float64
	}{
		{"croft_lease_wait_seconds", "namespace=orders outcome=acquired", 13, 13},
		{"croft_lease_wait_seconds", "namespace=orders outcome=refused", 1, 1},
		{"croft_leases_held", "namespace=orders", 2, 2},
		{"croft_lease_held_seconds", "namespace=orders result=success", 10, 10},
		{"croft_renew_margin_ratio", "namespace=orders", 1, 100},
		{"croft_renew_failures_total", "namespace=orders kind=unreachable", 1, 10},
		{"croft_transfers_total", "namespace=orders cause=first", 3, 3},
		{"croft_transfers_total", "namespace=orders cause=released", 9, 9},
		{"croft_transfers_total", "namespace=orders cause=expired", 1, 1},
		{"croft_leases_lost_total", "namespace=orders", 1, 1},
		{"croft_operations_total", "namespace=orders operation=acquire outcome=ok", 13, 13},
		{"croft_operations_total", "namespace=orders operation=release outcome=ok", 10, 10},
		{"croft_operations_total", "namespace=orders operation=release outcome=not_owned", 1, 1},
		{"croft_store_call_seconds", "operation=release outcome=ok", 1, 10},
		{"croft_resolved_outcomes_total", "namespace=orders operation=acquire outcome=ok", 1, 1},
		{"croft_guarded_writes_total", "namespace=orders guard=file outcome=admitted", 1, 1},
		{"croft_guarded_writes_total", "namespace=orders guard=file outcome=stale", 1, 1},
		{"croft_guarded_writes_total", "namespace=orders guard=file outcome=collision", 0, 0},
		{"croft_fence_raises_total", "namespace=orders guard=file outcome=admitted", 2, 2},
		{"croft_watch_failures_total", "namespace=orders", 1, 1000},
	} {
		if got := value(found[want.name], strings.Fields(want.labels)...); got < want.least || got > want.most {
			t.Errorf("%s{%s} is %v, want between %v and %v", want.name, want.labels, got, want.least, want.most)
		}
	}
	for name := range documented(t) {
		if found[name] == nil && !strings.HasPrefix(name, "croft_work_") {
			t.Errorf("%s is documented and was not seen", name)
		}
	}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// documented returns the names in the table of docs/metrics.md, with their
// labels.
func documented(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(croft_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		names[row[1]] = row[2] + " " + strings.ReplaceAll(row[3], "`", "")
	}
	return names
}

// TestTheTableOfMetricsIsComplete: the page lists the metrics that the code
// registers, with their labels.
func TestTheTableOfMetricsIsComplete(t *testing.T) {
	descs := make(chan *prometheus.Desc, 100)
	New(nil).Describe(descs)
	NewLedger(nil).Describe(descs)
	close(descs)
	table := documented(t)
	for d := range descs {
		text := d.String()
		name := regexp.MustCompile(`fqName: "([^"]*)"`).FindStringSubmatch(text)[1]
		labels := regexp.MustCompile(`variableLabels: \{([^}]*)\}`).FindStringSubmatch(text)[1]
		row, ok := table[name]
		if !ok {
			t.Errorf("docs/metrics.md does not have %s", name)
			continue
		}
		_, said, _ := strings.Cut(row, " ")
		if want := strings.ReplaceAll(labels, ",", " "); said != want {
			t.Errorf("docs/metrics.md gives %s the labels %q, it has %q", name, said, want)
		}
		delete(table, name)
	}
	for name := range table {
		t.Errorf("docs/metrics.md has %s, which is not there", name)
	}
}

// TestLabelsAreBounded: this holds for any number of namespaces, and for any
// keys.
func TestLabelsAreBounded(t *testing.T) {
	m := New(&Options{MaxNamespaces: 3})
	for i := range 50 {
		m.Observe(croft.Event{Kind: croft.EventAcquired, Key: fmt.Sprintf("tenant%d/job", i), Token: fence.Token(i + 1), TTL: time.Minute})
	}
	m.Observe(croft.Event{Kind: croft.EventAcquired, Key: "hello", Token: 1, TTL: time.Minute})
	held := scrape(t, m)["croft_leases_held"]
	if n := len(held.GetMetric()); n != 5 {
		t.Errorf("%d series for 51 namespaces, want 3, one for the others and one for none", n)
	}
	if other, none := value(held, "namespace=other"), value(held, "namespace=none"); other != 47 || none != 1 {
		t.Errorf("other %v, none %v", other, none)
	}
}

// TestWorkThatNeverReportsHasNoAge: long work that never reports must not look
// stalled. Work that reported through another process has an age.
func TestWorkThatNeverReportsHasNoAge(t *testing.T) {
	m := New(nil)
	start := time.Now()
	now := start
	m.now = func() time.Time { return now }
	for key := range 2 {
		m.Observe(croft.Event{Kind: croft.EventAcquired, Key: fmt.Sprintf("n%d/job", key), Token: 1, TTL: time.Minute})
	}
	now = start.Add(100 * time.Second)
	m.Observe(croft.Event{Kind: croft.EventRenewed, Key: "n0/job", Token: 1, TTL: time.Minute, Idle: 100*time.Second - time.Millisecond})
	m.Observe(croft.Event{Kind: croft.EventRenewed, Key: "n1/job", Token: 1, TTL: time.Minute, Idle: 30 * time.Second})
	ages := scrape(t, m)["croft_progress_age_seconds"]
	if never, elsewhere := value(ages, "namespace=n0"), value(ages, "namespace=n1"); never != -1 || elsewhere != 30 {
		t.Errorf("ages %v and %v, want none and 30", never, elsewhere)
	}
}

// TestALeaseThatEndsTwiceIsCountedOnce: the lease is lost, and then released.
func TestALeaseThatEndsTwiceIsCountedOnce(t *testing.T) {
	m := New(nil)
	for _, kind := range []croft.EventKind{croft.EventAcquired, croft.EventLost, croft.EventReleased, croft.EventReleaseLeft} {
		m.Observe(croft.Event{Kind: kind, Key: "a/b", Token: 1})
	}
	if held := value(scrape(t, m)["croft_leases_held"], "namespace=a"); held != 0 {
		t.Errorf("%v leases are held", held)
	}
	if len(m.leases) != 0 {
		t.Error("it is still remembered")
	}
}

// TestALeaseThatIsLostBeforeItBeginsIsForgotten: different goroutines tell of
// the two, and a process may be stopped in between. A lease that is renewed is
// not forgotten.
func TestALeaseThatIsLostBeforeItBeginsIsForgotten(t *testing.T) {
	m := New(nil)
	now := time.Now()
	m.now = func() time.Time { return now }
	m.Observe(croft.Event{Kind: croft.EventLost, Key: "a/b", Token: 1, Loss: croft.Superseded})
	m.Observe(croft.Event{Kind: croft.EventAcquired, Key: "a/b", Token: 1, TTL: time.Second})
	m.Observe(croft.Event{Kind: croft.EventAcquired, Key: "a/c", Token: 1, TTL: time.Second})
	for range 3 {
		now = now.Add(time.Second)
		m.Observe(croft.Event{Kind: croft.EventRenewed, Key: "a/c", Token: 1, TTL: time.Second})
	}
	if held := value(scrape(t, m)["croft_leases_held"], "namespace=a"); held != 1 {
		t.Errorf("%v leases are held, want 1", held)
	}
	if len(m.leases) != 1 {
		t.Errorf("%d leases are remembered, want 1", len(m.leases))
	}
}

// TestFailuresAreCountedFromZero: Prometheus sees no increase in a
// series that begins with all that an outage cost.
func TestFailuresAreCountedFromZero(t *testing.T) {
	m := New(nil)
	m.Observe(croft.Event{Kind: croft.EventAcquired, Key: "a/b", Token: 1, TTL: time.Minute})
	m.Observe(croft.Event{Kind: croft.EventRaised, Key: "a/b", Token: 1, Target: "out.json"})
	found := scrape(t, m)
	for name, labels := range map[string][]string{
		"croft_leases_lost_total":    {"namespace=a", "loss=unreachable"},
		"croft_renew_failures_total": {"namespace=a", "kind=timeout"},
		"croft_fence_raises_total":   {"namespace=a", "guard=file", "outcome=collision"},
		"croft_guarded_writes_total": {"namespace=a", "guard=file", "outcome=stale"},
	} {
		if got := value(found[name], labels...); got != 0 {
			t.Errorf("%s %v is %v, want 0", name, labels, got)
		}
	}
}

// TestTheKindOfATargetIsItsScheme: a path is a file whatever it contains.
// Otherwise there would be as many labels as folders.
func TestTheKindOfATargetIsItsScheme(t *testing.T) {
	for target, want := range map[string]string{
		"redis://h/0#k": "redis", "s3://b/k": "s3", "out/report.json": "file", "/data/42/a://b": "file", `C:\42\a://b`: "file", "://x": "file", "": "file",
	} {
		if got := kindOf(target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}
