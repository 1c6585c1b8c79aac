//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
)

// toolServer is an MCP server over HTTP. It writes to memory.
type toolServer struct {
	entered chan struct{}
	goOn    chan struct{}

	mu      sync.Mutex
	plan    string
	secrets []string // the values of Authorization that it has seen
}

func newToolServer(t *testing.T) (*toolServer, string) {
	b := &toolServer{entered: make(chan struct{}, 10), goOn: make(chan struct{})}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return b, server.URL + "/mcp"
}

func (b *toolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Params struct {
			Name      string
			Arguments struct{ Text string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if m.Params.Name == "slow" {
		b.entered <- struct{}{}
		select {
		case <-b.goOn:
		case <-r.Context().Done():
			return
		}
	}
	b.mu.Lock()
	b.plan = m.Params.Arguments.Text
	b.secrets = append(b.secrets, r.Header.Get("Authorization"))
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"written; %s"}]}}`,
		m.ID, r.Header.Get("Authorization"))
}

func (b *toolServer) wrote() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plan
}

// httpTool calls a tool of a croft mcp over HTTP and returns the result's text.
func (s *station) httpTool(address string, stamp fence.Stamp, tool, text string) (string, error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+address+"/mcp", strings.NewReader(fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q}}}`, tool, text)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	httpfence.SetStamp(req.Header, stamp)
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err == nil && (json.Unmarshal(body, &m) != nil || len(m.Result.Content) != 1) {
		return string(body), nil
	}
	if err != nil {
		return "", err
	}
	return m.Result.Content[0].Text, nil
}

// mustTool calls a tool and wants a text in its result.
func (s *station) mustTool(address string, stamp fence.Stamp, tool, text, want string) {
	s.t.Helper()
	if got, err := s.httpTool(address, stamp, tool, text); err != nil || !strings.Contains(got, want) {
		s.t.Errorf("%s: %s %v, want %s", text, got, err, want)
	}
}

// TestAReplacedAgentsHTTPCallBounces at a real croft mcp, which sends the
// server a secret that nobody else sees.
func TestAReplacedAgentsHTTPCallBounces(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	server, upstream := newToolServer(t)
	const secret = "Bearer 6f1c9d3b7a"
	s.file("secret", "Authorization: "+secret+"\n")
	metrics := filepath.Join(s.dir, "mcp.prom")
	croft, address := s.listening("mcp", "mcp", "--json", "--upstream", upstream, "--listen", "127.0.0.1:0", "--ttl", ttl,
		"--credential", "@secret", "--metrics", metrics, "--idempotency")
	ann := s.acquired("tasks/a", "--ttl", ttl, "--owner", "ann")
	s.mustTool(address, ann, "write_file", "ann's", "written; [hidden by croft]")
	bob := s.acquired("tasks/a", "--ttl", "1h", "--wait", "1m", "--owner", "bob")
	s.mustTool(address, bob, "write_file", "bob's", "written")
	s.mustTool(address, ann, "write_file", "ann's", "Refused by croft (")
	if got := server.wrote(); got != "bob's" {
		t.Errorf("the server has %s", got)
	}
	server.mu.Lock()
	if got := strings.Join(server.secrets, ", "); got != secret+", "+secret {
		t.Errorf("the server got %s", got)
	}
	server.plan = ""
	server.mu.Unlock()
	s.mustTool(address, bob, "write_file", "bob's", "written")
	if got := server.wrote(); got != "" {
		t.Errorf("a call that was answered was carried out again: %s", got)
	}
	s.until("the refusal on record", func() bool {
		_, out := s.run("inventory", "--refusals")
		return strings.Contains(out, "mcp/tasks/a") && strings.Contains(out, "ann")
	})
	if err := croft.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := croft.Wait(); err != nil {
		t.Errorf("the proxy ended with %v", err)
	}
	for _, name := range []string{"mcp.out", "mcp.prom"} {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil || strings.Contains(string(text), "6f1c9d3b7a") || !strings.Contains(string(text), "admitted") {
			t.Errorf("%s: %v %s", name, err, text)
		}
	}
}

// TestAnMCPProxyEndsWellOrIsFollowed: one that is asked to end finishes the
// call under way. One that is killed leaves its resource closed.
func TestAnMCPProxyEndsWellOrIsFollowed(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	server, upstream := newToolServer(t)
	stamp := s.acquired("tasks/a", "--ttl", "1h")
	start := func(name string, flags ...string) (stop func(syscall.Signal) error, address string) {
		c, address := s.listening(name, append([]string{
			"mcp", "--json", "--upstream", upstream, "--listen", "127.0.0.1:0", "--ttl", ttl, "--settle", "forever",
		}, flags...)...)
		return func(signal syscall.Signal) error {
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			return c.Wait()
		}, address
	}
	stop, address := start("one")
	slow := make(chan string, 1)
	go func() {
		got, err := s.httpTool(address, stamp, "slow", "x")
		slow <- fmt.Sprint(got, err)
	}()
	<-server.entered
	ended := make(chan error, 1)
	go func() { ended <- stop(syscall.SIGTERM) }()
	server.goOn <- struct{}{}
	if got := <-slow; !strings.Contains(got, "written") {
		t.Errorf("the call under way: %s", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("the proxy ended with %v", err)
	}
	stop, address = start("two")
	s.mustTool(address, stamp, "write_file", "next", "written")
	go func() { _, _ = s.httpTool(address, stamp, "slow", "x") }()
	<-server.entered
	_ = stop(syscall.SIGKILL)
	_, address = start("three", "--wait", "1s")
	s.until("the resource is closed", func() bool {
		got, err := s.httpTool(address, stamp, "write_file", "after a kill")
		return err == nil && strings.Contains(got, "closed until an operator opens it")
	})
	s.must(0, "proxy", "open", "mcp/tasks/a", "--note", "looked: nothing was written")
	s.mustTool(address, stamp, "write_file", "when it is open", "written")
}

// TestACroftMCPObserves: over stdio the call of a replaced agent passes, and is
// noted.
func TestACroftMCPObserves(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.file("key", "API_KEY=0123456789\n")
	lease := s.file("lease", s.must(0, "acquire", "tasks/a", "--ttl", "1s", "--owner", "ann"))
	s.acquired("tasks/a", "--ttl", "1h", "--wait", "1m", "--owner", "bob")
	a := s.mcp("@"+lease, "--observe", "--credential", "@key")
	if got := a.call("write_file", "plan", "ann's"); got != "written" {
		t.Errorf("a call in a trial: %s; %s", got, a.stderr)
	}
	if got := a.call("key", "", ""); got != "[hidden by croft]" {
		t.Errorf("the server's secret: %s", got)
	}
	s.until("the note", func() bool {
		_, out := s.run("inventory", "--refusals")
		return strings.Contains(out, "let in all the same")
	})
	_ = a.in.Close()
	if err := a.cmd.Wait(); err != nil || !strings.Contains(a.stderr.String(), "only OBSERVES") {
		t.Errorf("the proxy: %v; %s", err, a.stderr)
	}
}
