//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// These are the two owners of a resource and their content.
var (
	olderOwner = fence.Stamp{Key: "jobs/a", Token: 41, Grant: "0123456789abcdef0123456789abcdef"}
	newerOwner = fence.Stamp{Key: "jobs/a", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
)

// behind is a service that cannot check stamps. A write whose body is "slow"
// waits until the test lets it go.
type behind struct {
	mu      sync.Mutex
	effects []string
	entered chan struct{}
	goOn    chan struct{}
}

func newBehind(t *testing.T) (*behind, string) {
	b := &behind{entered: make(chan struct{}, 1), goOn: make(chan struct{})}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return b, server.URL
}

func (b *behind) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet { // one that never ends
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	body, _ := io.ReadAll(r.Body)
	if string(body) == "slow" {
		b.entered <- struct{}{}
		<-b.goOn
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.effects = append(b.effects, string(body))
}

func (b *behind) seen() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.effects, " ")
}

// proxyProcess is a real croft proxy.
type proxyProcess struct {
	*exec.Cmd
	url string
}

func (s *station) proxy(name, upstream string, args ...string) *proxyProcess {
	s.t.Helper()
	c, address := s.listening(name, append([]string{
		"proxy", "--json", "--owner", name, "--upstream", upstream, "--resource", "/r/{id}",
		"--listen", "127.0.0.1:0", "--ttl", ttl, "--leases", "none",
	}, args...)...)
	return &proxyProcess{c, "http://" + address + "/r/1"}
}

// put writes under a stamp. Its error is a refusal or a failure.
func (s *station) put(target string, stamp fence.Stamp, body string) error {
	client := &http.Client{Transport: &httpfence.Transport{Source: httpfence.Fixed(stamp)}, Timeout: patience}
	req, err := http.NewRequest(http.MethodPut, target, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := httpfence.RefusalIn(resp); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// insist writes until the write is admitted.
func (s *station) insist(target string, stamp fence.Stamp, body string) {
	s.t.Helper()
	s.until("the write "+body, func() bool {
		err := s.put(target, stamp, body)
		var p *httpfence.ProblemError
		if err != nil && (!errors.As(err, &p) || p.Sent || p.Status != http.StatusServiceUnavailable) {
			s.t.Fatalf("the write %s: %v", body, err)
		}
		return err == nil
	})
}

// TestAProxyThatEndsWellHandsOverAtOnce: a proxy that is asked to end finishes
// the writes it has begun, and does not wait for reads that never end.
func TestAProxyThatEndsWellHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	service, upstream := newBehind(t)
	one := s.proxy("one", upstream, "--settle", "forever")
	two := s.proxy("two", upstream, "--settle", "forever")
	endless, err := http.Get(one.url)
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Body.Close()
	slow := make(chan error, 1)
	go func() { slow <- s.put(one.url, olderOwner, "slow") }()
	<-service.entered
	if err := s.put(two.url, newerOwner, "early"); err == nil {
		t.Error("two proxies let writes in at once")
	}
	if err := one.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	close(service.goOn)
	if err := <-slow; err != nil {
		t.Errorf("what was under way: %v", err)
	}
	if err := one.Wait(); err != nil {
		t.Errorf("the proxy ended with %v", err)
	}
	s.insist(two.url, newerOwner, "newer")
	if err := s.put(two.url, olderOwner, "stale"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the older owner: %v, want ErrStale", err)
	}
	if want := "slow newer"; service.seen() != want {
		t.Errorf("the service saw %q, want %q", service.seen(), want)
	}
}

// TestAStoppedProxyIsFollowedWhenItsWriteHasSettled: a proxy is stopped in the
// middle of a write, another follows, and the first wakes up. Whatever writes
// it still has, no older one comes after a newer one.
func TestAStoppedProxyIsFollowedWhenItsWriteHasSettled(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	service, upstream := newBehind(t)
	// Within this time the test must see the second proxy and let the write go.
	const settle = "10s"
	one := s.proxy("one", upstream, "--settle", settle, "--answer-within", settle)
	two := s.proxy("two", upstream, "--settle", settle, "--answer-within", settle)
	var wait sync.WaitGroup
	wait.Go(func() { _ = s.put(one.url, olderOwner, "slow") })
	<-service.entered
	if err := one.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The stopped proxy has these writes when it wakes.
	for i := range 3 {
		wait.Go(func() { _ = s.put(one.url, olderOwner, fmt.Sprintf("late%d", i)) })
	}
	wait.Go(func() { s.insist(two.url, newerOwner, "newer") })
	// A croft process for every look would take too long.
	st, err := store.Open(t.Context(), filepath.Join(s.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s.until("the second proxy", func() bool {
		rec, err := st.Get(t.Context(), "croft-proxy/r/1")
		return err == nil && rec.Owner == "two"
	})
	close(service.goOn)
	s.until("the newer write", func() bool { return strings.Contains(service.seen(), "newer") })
	if err := one.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	if err := s.put(one.url, olderOwner, "later"); err == nil {
		t.Error("the older owner was let in by the proxy that had been stopped")
	}
	if want := "slow newer"; service.seen() != want {
		t.Errorf("the service saw %q, want %q", service.seen(), want)
	}
}

// TestAnOperatorOpensWhatADeadProxyLeft: before that nothing is admitted.
func TestAnOperatorOpensWhatADeadProxyLeft(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	service, upstream := newBehind(t)
	one := s.proxy("one", upstream)
	two := s.proxy("two", upstream, "--settle", "forever", "--wait", "100ms")
	if err := s.put(one.url, olderOwner, "older"); err != nil {
		t.Fatal(err)
	}
	if err := one.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.until("the resource to be found closed", func() bool {
		err := s.put(two.url, newerOwner, "early")
		return err != nil && strings.Contains(err.Error(), "until an operator opens it (croft proxy open)")
	})
	c, out := s.croft("proxy", "open", "r/1", "--note", "nothing was under way")
	if err := c.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.insist(two.url, newerOwner, "newer")
	if want := "older newer"; service.seen() != want {
		t.Errorf("the service saw %q, want %q", service.seen(), want)
	}
}

// TestAProxyTellsOperatorsWhatItRefuses: refusals are in its metrics, and in
// the store with the refused owner.
func TestAProxyTellsOperatorsWhatItRefuses(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	_, upstream := newBehind(t)
	say := func(args ...string) string {
		t.Helper()
		c, out := s.croft(args...)
		if err := c.Wait(); err != nil {
			t.Fatalf("croft %v: %v\n%s", args, err, out)
		}
		return out.String()
	}
	stamp := func(said string) fence.Stamp {
		t.Helper()
		var granted struct{ Stamp string }
		// Messages for people may precede it.
		err := json.Unmarshal([]byte(said[max(strings.Index(said, "{"), 0):]), &granted)
		s, parseErr := fence.ParseStamp(granted.Stamp)
		if err != nil || parseErr != nil {
			t.Fatalf("%s: %v, %v", said, err, parseErr)
		}
		return s
	}
	older := stamp(say("acquire", "jobs/b", "--owner", "ada", "--ttl", "10m", "--json"))
	newer := stamp(say("takeover", "jobs/b", "--owner", "bob", "--note", "ada is gone", "--json"))
	p := s.proxy("one", upstream, "--metrics", "proxy.prom")
	if err := s.put(p.url, newer, "newer"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.put(p.url, older, "older"); !errors.Is(err, fence.ErrStale) {
			t.Fatalf("the older owner: %v, want ErrStale", err)
		}
	}
	// The proxy records refusals in the background. At its end it waits for the
	// record, but not for long. So the test waits before it ends the proxy.
	remembered := func() int {
		count := 0
		for line := range strings.Lines(say("inventory", "--refusals", "--json", "jobs/")) {
			var r struct {
				Owner, Code, Target string
				Count               int
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Owner != "ada" || r.Code != "stale" || r.Target != "http:r/1" {
				t.Errorf("remembered %s (%v)", line, err)
			}
			count += r.Count
		}
		return count
	}
	for end := time.Now().Add(testenv.Patience); remembered() < 3; time.Sleep(300 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("fewer than 3 refusals are remembered after %s", testenv.Patience)
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	metrics := s.read("proxy.prom") + "\n"
	for _, want := range []string{
		`croft_guarded_writes_total{guard="http",namespace="jobs",outcome="admitted"} 1`,
		`croft_guarded_writes_total{guard="http",namespace="jobs",outcome="stale"} 3`,
		`croft_http_answer_seconds_count{status="2xx"} 1`,
		`croft_http_resources{state="closed"} 0`,
		`croft_transfers_total{cause="first",namespace="croft-proxy"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if count := remembered(); count != 3 {
		t.Errorf("%d refusals are remembered, want 3", count)
	}
}

// TestAMarkIsShownUnderTheNameThatTheProxyAnnounces: a user puts the resource
// into the announced place. The proxy keeps the mark in one file.
func TestAMarkIsShownUnderTheNameThatTheProxyAnnounces(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	_, upstream := newBehind(t)
	p := s.proxy("one", upstream)
	s.insist(p.url, newerOwner, "new")
	for _, target := range []string{"store-marks/r/1", filepath.Join(s.dir, "store-marks/r/1")} {
		var mark fence.Mark
		if err := json.Unmarshal([]byte(s.must(0, "guard", "show", target, "--json")), &mark); err != nil {
			t.Fatal(err)
		}
		if mark.Token != newerOwner.Token || mark.Key != newerOwner.Key {
			t.Errorf("%s: mark %+v, want that of %+v", target, mark, newerOwner)
		}
	}
	if shown := s.must(0, "guard", "show", "store-marks/r"); !strings.Contains(shown, "not guarded yet") {
		t.Errorf("a part of the name: %s", shown)
	}
}
