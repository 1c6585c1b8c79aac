package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/store/refusals"
)

// gated is a service behind a proxy whose events are counted.
type gated struct {
	*testing.T
	front  string
	client *croft.Client
}

// newGated starts a service that answers PUT /orders/ok and breaks the
// connection at /orders/silent. At /down/… there is none.
func newGated(t *testing.T, m *Metrics) *gated {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/silent") {
			panic(http.ErrAbortHandler) // the connection breaks
		}
	}))
	t.Cleanup(service.Close)
	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	client := croft.New(mem.New(nil), &croft.Options{Owner: "ann"})
	t.Cleanup(func() { _ = client.Close() })
	rule, err := httpfence.ParseRule("/orders/{id}")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	marks := map[string]*guardtest.Memory{}
	open := func(_ context.Context, resource string) (guard.Guard, error) {
		mu.Lock()
		defer mu.Unlock()
		if marks[resource] == nil {
			marks[resource] = &guardtest.Memory{}
		}
		return marks[resource], nil
	}
	proxy := func(to, prefix string) http.Handler {
		upstream, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		p, err := httpfence.NewProxy(upstream, httpfence.ProxyOptions{Options: httpfence.Options{
			Rules: []httpfence.Rule{rule}, Marks: open, Client: client, LeasePrefix: prefix, Settle: croft.Forever, Wait: time.Minute, Observe: m.Gate,
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close(context.Background()) })
		return p
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy(service.URL, ""))
	mux.Handle("/down/", http.StripPrefix("/down", proxy(nobody.URL, "down/")))
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	return &gated{t, front.URL, client}
}

// put writes with a stamp and returns the proxy's answer.
func (g *gated) put(path string, stamp fence.Stamp) error {
	g.Helper()
	req, err := http.NewRequestWithContext(g.Context(), http.MethodPut, g.front+path, strings.NewReader("x"))
	if err != nil {
		return err
	}
	req.Header.Set("Croft-Stamp", stamp.String())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	refused := httpfence.RefusalIn(resp)
	_, _ = io.Copy(io.Discard, resp.Body)
	return refused
}

// everything makes each event happen at the proxy once.
func (g *gated) everything() {
	g.Helper()
	old, err := g.client.Acquire(g.Context(), "orders/job", nil)
	if err == nil {
		err = old.Release(g.Context())
	}
	if err != nil {
		g.Fatal(err)
	}
	newer, err := g.client.Acquire(g.Context(), "orders/job", nil)
	if err != nil {
		g.Fatal(err)
	}
	for _, write := range []struct {
		path  string
		stamp fence.Stamp
		want  error
	}{
		{"/orders/ok", newer.Stamp(), nil},
		{"/orders/ok", old.Stamp(), fence.ErrStale},
		{"/orders/silent", newer.Stamp(), croft.ErrUnknown},
		{"/down/orders/down", newer.Stamp(), croft.ErrUnknown},
	} {
		if err := g.put(write.path, write.stamp); !errors.Is(err, write.want) {
			g.Fatalf("%s: %v, want %v", write.path, err, write.want)
		}
	}
}

// TestObservedWritesAreCounted: an observed write is admitted, and counted
// by the reason. A write without an answer of the store is counted by what
// became of it.
func TestObservedWritesAreCounted(t *testing.T) {
	m := New(nil)
	for _, e := range []gate.Event{
		{Kind: gate.Admitted, Key: "orders/job", Token: 2},
		{Kind: gate.Observed, Key: "orders/job", Token: 1, Status: 409, Code: "stale"},
		{Kind: gate.Observed, Key: "orders/job", Token: 1, Status: 409, Code: "not_owned"},
		{Kind: gate.Observed, Status: 428, Code: "invalid"},
		{Kind: gate.Observed, Key: "made/up", Token: 1, Status: 409, Code: "not_owned"},
		{Kind: gate.Unsure, Key: "orders/job", Token: 2},
		{Kind: gate.Unsure, Key: "orders/job", Token: 2, Status: 503},
		{Kind: gate.Unsure, Key: "orders/job", Token: 2, Status: 503},
	} {
		m.Gate(e)
	}
	found := scrape(t, m)
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"croft_guarded_writes_total", "namespace=orders guard=http outcome=admitted", 3},
		{"croft_guarded_writes_total", "namespace=orders guard=http outcome=stale", 0},
		{"croft_observed_refusals_total", "namespace=orders guard=http outcome=stale", 1},
		{"croft_observed_refusals_total", "namespace=orders guard=http outcome=not_owned", 1},
		{"croft_observed_refusals_total", "namespace=none guard=http outcome=invalid", 1},
		{"croft_observed_refusals_total", "namespace=other guard=http outcome=not_owned", 1},
		{"croft_http_unsure_total", "namespace=orders decision=admitted", 1},
		{"croft_http_unsure_total", "namespace=orders decision=refused", 2},
	} {
		if got := value(found[want.name], strings.Fields(want.labels)...); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
}

// TestTheActsOfAProxyAreCounted: the metrics count writes let in and refused,
// answered and not, and closed resources.
func TestTheActsOfAProxyAreCounted(t *testing.T) {
	m := New(nil)
	g := newGated(t, m)
	g.everything()
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"croft_guarded_writes_total", "namespace=orders guard=http outcome=admitted", 3},
		{"croft_guarded_writes_total", "namespace=orders guard=http outcome=stale", 1},
		{"croft_guarded_writes_total", "namespace=orders guard=http outcome=collision", 0},
		{"croft_http_answer_seconds", "status=2xx", 1},
		{"croft_http_unanswered_total", "namespace=orders outcome=in_doubt", 1},
		{"croft_http_unanswered_total", "namespace=orders outcome=not_sent", 1},
		{"croft_http_resources", "state=taken", 3},
		{"croft_http_resources", "state=closed", 1},
	} {
		// The event may come just after the answer.
		eventually(t, want.name+" "+want.labels, func() bool { return value(scrape(t, m)[want.name], strings.Fields(want.labels)...) == want.value })
	}
	eventually(t, "the refusal in the store", func() bool {
		all, err := refusals.Read(t.Context(), g.client.Store(), "orders/")
		return err == nil && len(all) == 1 && all[0].Owner == "ann" && all[0].Code == "stale" && all[0].Target == "http:orders/ok"
	})
}

// TestAClosedResourceIsCountedWhileItIs: the count ends with the time, even if
// nobody comes to open the resource.
func TestAClosedResourceIsCountedWhileItIs(t *testing.T) {
	m := New(nil)
	now := time.Now()
	m.now = func() time.Time { return now }
	closed := func() float64 { return value(scrape(t, m)["croft_http_resources"], "state=closed") }
	if got := closed(); got != -1 {
		t.Errorf("%v closed where there is no proxy", got)
	}
	for resource, d := range map[string]time.Duration{"a": time.Minute, "b": croft.Forever, "c": time.Hour} {
		m.Gate(gate.Event{Kind: gate.Taken, Resource: resource})
		m.Gate(gate.Event{Kind: gate.Closed, Resource: resource, For: d})
	}
	for _, step := range []struct {
		after time.Duration
		event gate.Event
		want  float64
	}{
		{0, gate.Event{}, 3},
		{time.Minute, gate.Event{}, 2},
		{0, gate.Event{Kind: gate.Opened, Resource: "c"}, 1},
		{1000 * time.Hour, gate.Event{}, 1},
		{0, gate.Event{Kind: gate.Left, Resource: "b"}, 0},
	} {
		now = now.Add(step.after)
		m.Gate(step.event)
		if got := closed(); got != step.want {
			t.Errorf("%v closed after %+v, want %v", got, step, step.want)
		}
	}
	if got := value(scrape(t, m)["croft_http_resources"], "state=taken"); got != 2 {
		t.Errorf("%v taken", got)
	}
}

// TestNamespacesThatWereNamedKeepTheirLabels: they keep them whatever else is
// admitted.
func TestNamespacesThatWereNamedKeepTheirLabels(t *testing.T) {
	m := New(&Options{MaxNamespaces: 3, Namespaces: []string{"jobs", ""}})
	for i := range 10 {
		m.Gate(gate.Event{Kind: gate.Admitted, Key: fmt.Sprintf("made-up-%d/x", i), Token: 1})
	}
	m.Gate(gate.Event{Kind: gate.Admitted, Key: "jobs/a", Token: 1})
	if got := m.spaces.of("jobs/a"); got != "jobs" {
		t.Errorf("the label of jobs is %s", got)
	}
}

// TestMadeUpKeysTakeNoLabels: refused writes with keys that no mark knows take
// no labels from real keys.
func TestMadeUpKeysTakeNoLabels(t *testing.T) {
	m := New(&Options{MaxNamespaces: 3})
	for i := range 10 {
		for _, code := range []string{"wrong_key", "held", "invalid", "unknown"} {
			m.Gate(gate.Event{Kind: gate.Refused, Key: fmt.Sprintf("made-up-%d/x", i), Token: 1, Status: http.StatusConflict, Code: code})
		}
	}
	m.Gate(gate.Event{Kind: gate.Admitted, Key: "jobs/a", Token: 1})
	m.Gate(gate.Event{Kind: gate.Refused, Key: "billing/a", Token: 1, Status: http.StatusConflict, Code: "stale"})
	for _, space := range []string{"jobs", "billing"} {
		if got := m.spaces.known(space + "/a"); got != space {
			t.Errorf("the label of %s is %s", space, got)
		}
	}
	if got := m.spaces.known("made-up-1/x"); got != otherSpace {
		t.Errorf("the label of a made-up key is %s, want %s", got, otherSpace)
	}
}
