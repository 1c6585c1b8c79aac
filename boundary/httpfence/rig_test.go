package httpfence

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
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// There are two owners. The newer has replaced the older.
var (
	older = fence.Stamp{Key: "jobs/a", Token: 41, Grant: "0123456789abcdef0123456789abcdef"}
	newer = fence.Stamp{Key: "jobs/a", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
)

func numbered(s fence.Stamp, seq uint64) fence.Stamp {
	s.Seq = seq
	return s
}

// memoryMarks keeps marks in memory. It can be made unreachable.
type memoryMarks struct {
	mu    sync.Mutex
	marks map[string]*guardtest.Memory
	down  error
}

func (m *memoryMarks) open(_ context.Context, resource string) (guard.Guard, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marks == nil {
		m.marks = map[string]*guardtest.Memory{}
	}
	if m.marks[resource] == nil {
		m.marks[resource] = &guardtest.Memory{}
	}
	return memoryGuard{m.marks[resource], m}, nil
}

// served opens the second mark of a resource.
func (m *memoryMarks) served(ctx context.Context, resource string) (guard.Guard, error) {
	return m.open(ctx, resource+"/.")
}

func (m *memoryMarks) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = err
}

func (m *memoryMarks) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

type memoryGuard struct {
	*guardtest.Memory
	all *memoryMarks
}

func (g memoryGuard) Mark(ctx context.Context) (fence.Mark, error) {
	if err := g.all.err(); err != nil {
		return fence.Mark{}, err
	}
	return g.Memory.Mark(ctx)
}

func (g memoryGuard) Raise(ctx context.Context, s fence.Stamp) (fence.Mark, error) {
	if err := g.all.err(); err != nil {
		return fence.Mark{}, err
	}
	return g.Memory.Raise(ctx, s)
}

// rule parses a valid rule.
func rule(t testing.TB, text string) Rule {
	t.Helper()
	r, err := ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newClient makes a client of a store, with an owner of its own.
func newClient(t testing.TB, st *mem.Store, owner string) *croft.Client {
	t.Helper()
	c := croft.New(st.Open(nil), &croft.Options{Owner: owner, CallTimeout: testenv.Patience})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// world has what gates share: a store of leases and the marks.
type world struct {
	store *mem.Store
	marks *memoryMarks
}

func newWorld() *world { return &world{store: mem.New(nil), marks: &memoryMarks{}} }

// options returns valid options: a short settle time, and a lease that outlasts
// any test.
func (w *world) options(t testing.TB, owner string) Options {
	return Options{
		Rules: []Rule{rule(t, "/r/{id}")}, Marks: w.marks.open, Client: newClient(t, w.store, owner),
		TTL: time.Minute, Settle: 100 * time.Millisecond, Wait: testenv.Patience,
	}
}

// gate makes a gate and closes it with the test.
func (w *world) gate(t testing.TB, owner string, change func(*Options)) *Gate {
	t.Helper()
	o := w.options(t, owner)
	if change != nil {
		change(&o)
	}
	g, err := NewGate(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(g.Close) })
	return g
}

// proxy makes a proxy in front of a handler, and closes both with the test.
func (w *world) proxy(t testing.TB, owner string, upstream http.Handler, change func(*ProxyOptions)) (*Proxy, *httptest.Server) {
	t.Helper()
	service := httptest.NewServer(upstream)
	t.Cleanup(service.Close)
	return w.proxyTo(t, owner, service.URL, change)
}

func (w *world) proxyTo(t testing.TB, owner, upstream string, change func(*ProxyOptions)) (*Proxy, *httptest.Server) {
	t.Helper()
	o := ProxyOptions{Options: w.options(t, owner)}
	o.Settle = testenv.Patience // AnswerWithin depends on it
	o.ConnectWithin = testenv.Patience
	if change != nil {
		change(&o)
	}
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProxy(u, o)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(p)
	t.Cleanup(func() {
		front.Close()
		closeSoon(p.Close)
	})
	return p, front
}

func closeSoon(end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = end(ctx)
}

// send sends a request under a stamp (the zero Stamp sends none) and returns
// the answer with its body.
func send(t testing.TB, method, target string, stamp fence.Stamp, body string) reply {
	t.Helper()
	r, err := sendErr(t.Context(), method, target, stamp, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sendErr(ctx context.Context, method, target string, stamp fence.Stamp, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if stamp != (fence.Stamp{}) {
		SetStamp(req.Header, stamp)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	refused := RefusalIn(resp)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(text)}
	errors.As(refused, &r.problem)
	return r, nil
}

type reply struct {
	status  int
	header  http.Header
	body    string
	problem *ProblemError
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, strings.TrimSpace(r.body)) }

// want checks the status and the problem's code. The code "" means that there
// must be no problem.
func (r reply) want(t testing.TB, what string, status int, code string) {
	t.Helper()
	got := ""
	if r.problem != nil {
		got = r.problem.Code
	}
	if r.status != status || got != code {
		t.Errorf("%s: %s; want %d %s", what, r, status, code)
	}
}

// lose takes the lease on r/1 from a gate. The gate learns of it at once
// instead of at its next renewal.
func (w *world) lose(t testing.TB, g *Gate) {
	ctx := context.Background()
	if _, err := newClient(t, w.store, "op").Revoke(ctx, DefaultLeasePrefix+"r/1", croft.ByHand{Note: "test"}); err != nil {
		t.Error(err)
	}
	s, _ := g.core.Inspect("r/1")
	if err := s.Lease.Report(ctx, "still there"); !errors.Is(err, croft.ErrNotOwned) {
		t.Errorf("the gate's lease, when it was revoked: %v, want ErrNotOwned", err)
	}
}

// echo answers every request with its method, path and body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
}

// journal records what reached a service, in order.
type journal struct {
	mu   sync.Mutex
	seen []string
}

func (l *journal) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, fmt.Sprintf(format, args...))
}

func (l *journal) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = nil
}

func (l *journal) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.seen, " ")
}
