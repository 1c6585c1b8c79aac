//go:build linux

package hostile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// The stamps of an owner and of its successor.
const (
	olderStamp = "croft1:41:0123456789abcdef0123456789abcdef:0:jobs/a"
	newerStamp = "croft1:42:fedcba9876543210fedcba9876543210:0:jobs/a"
)

// TestProxy attacks a real croft proxy over raw sockets. It needs no second
// user: everybody who reaches the port can attack.
func TestProxy(t *testing.T) {
	t.Parallel()
	croft := built(t)
	for name, attack := range map[string]func(*testing.T, string){
		"a body is taken for a request":     smuggle,
		"a replaced owner floods":           starve,
		"bodies are left open":              openBodies,
		"the body of a stale write is sent": staleBodies,
		"resources are made up":             madeUpResources,
		"another request is named":          otherRequest,
		"errors are read":                   readErrors,
		"metrics are read from outside":     readMetrics,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attack(t, croft)
		})
	}
}

// proxyUnderAttack is one croft proxy, with a directory as its store.
type proxyUnderAttack struct {
	*testing.T
	process *os.Process
	address string
	dir     string
}

// startProxy starts a proxy in front of an upstream. Its rule is /r/{id}.
func startProxy(t *testing.T, croft, upstream string, args ...string) *proxyUnderAttack {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"proxy", "--json", "--store", filepath.Join(dir, "store"), "--owner", "secret-owner", "--upstream", upstream, "--resource", "/r/{id}", "--listen", "127.0.0.1:0", "--leases", "none"}, args...)
	c := exec.Command(croft, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "TMPDIR="+dir)
	said, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	c.Stderr = said
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	lines := bufio.NewReader(out)
	first, err := lines.ReadBytes('\n')
	var listening struct{ Address string }
	if err != nil || json.Unmarshal(first, &listening) != nil || listening.Address == "" {
		text, _ := os.ReadFile(filepath.Join(dir, "stderr"))
		t.Fatalf("the proxy did not begin: %v\n%s%s", err, first, text)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // a full pipe would stop it
	return &proxyUnderAttack{t, c.Process, listening.Address, dir}
}

// dial connects to the proxy.
func (p *proxyUnderAttack) dial() net.Conn {
	p.Helper()
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	return conn
}

// send sends a request exactly as it is written. It returns the status and the
// body of the answer, or 0 and the reason why there is none.
func (p *proxyUnderAttack) send(request string) (status int, body string) {
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		return 0, err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	_, _ = io.WriteString(conn, request) // the proxy may refuse before the end
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// proxied writes a request for the proxy. stamp is "" for none.
func proxied(method, path, stamp string, headers ...string) string {
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: 127.0.0.1"}, headers...)
	if stamp != "" {
		lines = append(lines, "Croft-Stamp: "+stamp)
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// upstream is a service that records its requests. It reads no bodies: on a
// connection that stays open it takes a body for the next request. A PATCH
// takes a tenth of a second.
type upstream struct {
	url  string
	mu   sync.Mutex
	seen []string
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	u := &upstream{url: "http://" + l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go u.serve(conn)
		}
	}()
	return u
}

func (u *upstream) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		u.mu.Lock()
		u.seen = append(u.seen, r.Method+" "+r.URL.Path)
		u.mu.Unlock()
		if r.Method == http.MethodPatch {
			time.Sleep(100 * time.Millisecond)
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil || r.Close {
			return
		}
	}
}

func (u *upstream) journal() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Join(u.seen, ", ")
}

// smuggle hides a DELETE in the body of a request that needs no stamp. The
// reads that follow give the service time to see it, on the same connection.
func smuggle(t *testing.T, croft string) {
	inside := proxied("DELETE", "/r/1", "")
	service := newUpstream(t)
	p := startProxy(t, croft, service.url, "--exempt", "SEARCH /find")
	for _, c := range []struct {
		method, path string
		want         int
	}{{"GET", "/r/1", 400}, {"HEAD", "/r/1", 400}, {"SEARCH", "/find", 200}} {
		conn := p.dial()
		if _, err := io.WriteString(conn, proxied(c.method, c.path, "", fmt.Sprintf("Content-Length: %d", len(inside)))+inside); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.method})
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s with a body: %d, want %d", c.method, resp.StatusCode, c.want)
		}
		for range 3 {
			if status, body := p.send(proxied("GET", "/after", "")); status != http.StatusOK {
				t.Errorf("a read after it: %d %s", status, body)
			}
		}
	}
	if strings.Contains(service.journal(), "DELETE") {
		t.Errorf("the service saw %s", service.journal())
	}
}

// starve floods a resource with writes of a replaced owner. Each of 60 clients
// sends the next write when one is answered. The new owner sends one write. It
// must not wait until all 60 had their turn. After it, no write of the flood
// may reach the service.
//
// A machine that stands still may deliver the new owner's write late. So up to
// 5 resources are attacked, and the wait must be short at one of them.
func starve(t *testing.T, croft string) {
	const clients, attempts = 60, 5
	service := newUpstream(t)
	p := startProxy(t, croft, service.url)
	before := 0
	for i := range attempts {
		path := fmt.Sprintf("/r/%d", i)
		stop := make(chan struct{})
		var flood sync.WaitGroup
		for range clients {
			flood.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					status, body := p.send(proxied("PATCH", path, olderStamp))
					if status == http.StatusConflict {
						return
					}
					if status != http.StatusOK {
						t.Errorf("one of the flood: %d %s", status, body)
						return
					}
				}
			})
		}
		count := func() int { return strings.Count(service.journal(), "PATCH "+path) }
		for end := time.Now().Add(testenv.Patience); count() < 3; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the flood does not reach the service")
			}
		}
		begun := count()
		status, body := p.send(proxied("PUT", path, newerStamp))
		close(stop)
		flood.Wait()
		if status != http.StatusOK {
			t.Fatalf("the new owner: %d %s", status, body)
		}
		seen := service.journal()
		if strings.LastIndex(seen, "PATCH "+path) > strings.Index(seen, "PUT "+path) {
			t.Errorf("a write of the replaced owner came after the new owner's: %s", seen)
		}
		if before = count() - begun; before < clients/2 {
			return
		}
	}
	t.Errorf("%d writes of the replaced owner went before the new owner's, at the last of %d resources; want few", before, attempts)
}

// openBodies opens 400 bodies of 2 MiB and sends half of each. The proxy must
// refuse bodies beyond one client's share, and keep little in memory.
func openBodies(t *testing.T, croft string) {
	p := startProxy(t, croft, newUpstream(t).url, "--max-bodies", "256MiB")
	// A body of this size once stayed in memory, and only longer ones went to a
	// temporary file. The limit is lower now.
	half := strings.Repeat("x", 1<<20-1)
	const bodies, share = 400, 128
	answers := make(chan int, bodies)
	for i := range bodies {
		conn := p.dial()
		go func() {
			_, _ = io.WriteString(conn, proxied("PUT", fmt.Sprintf("/r/%d", i), newerStamp, "Content-Length: 2097152")+half)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				_ = resp.Body.Close()
				answers <- resp.StatusCode
			} else {
				answers <- 0 // the test is over
			}
		}()
	}
	patience := time.After(testenv.Patience)
	for n := range bodies - share - 1 { // pieces of the last body may fill the rest
		select {
		case status := <-answers:
			if status != http.StatusTooManyRequests {
				t.Errorf("answered %d, want 429", status)
			}
		case <-patience:
			t.Fatalf("%d writes were refused, want %d", n, bodies-share)
		}
	}
	peak := memoryPeak(t, p.process.Pid)
	t.Logf("the proxy had %d MiB in memory", peak>>20)
	if peak > 200<<20 {
		t.Errorf("the proxy had %d MiB in memory, want at most 200", peak>>20)
	}
}

// memoryPeak returns the peak memory of a process, in bytes.
func memoryPeak(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kilobytes int64
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(peak, &kilobytes); err != nil {
		t.Fatalf("%v in %s", err, status)
	}
	return kilobytes << 10
}

// staleBodies announces many bodies at once, under a stamp that is known to be
// stale. The proxy must refuse them before any part of a body is sent.
func staleBodies(t *testing.T, croft string) {
	p := startProxy(t, croft, newUpstream(t).url)
	if status, body := p.send(proxied("PUT", "/r/1", newerStamp)); status != http.StatusOK {
		t.Fatalf("the new owner: %d %s", status, body)
	}
	var all sync.WaitGroup
	for i := range 40 {
		length := "Content-Length: 50000000"
		if i%2 == 0 {
			length = "Content-Length: 1000" // servers like to read these before they answer
		}
		all.Go(func() {
			if status, body := p.send(proxied("PUT", "/r/1", olderStamp, length)); status != http.StatusConflict {
				t.Errorf("a stale write without its body: %d %s, want 409", status, body)
			}
		})
	}
	all.Wait()
}

// madeUpResources writes to resources that nobody needs.
func madeUpResources(t *testing.T, croft string) {
	const share, tries = 10, 20
	p := startProxy(t, croft, newUpstream(t).url, "--max-resources", fmt.Sprint(2*share))
	for i := range tries {
		want := http.StatusOK
		if i >= share {
			want = http.StatusTooManyRequests
		}
		if status, body := p.send(proxied("PUT", fmt.Sprintf("/r/%d", i), newerStamp)); status != want {
			t.Errorf("resource %d: %d %s, want %d", i, status, body, want)
		}
	}
	marks, err := os.ReadDir(filepath.Join(p.dir, "store-marks"))
	if err != nil || len(marks) != 2*share { // each has a mark, and a note that it was served
		t.Errorf("%d marks were made (%v), want %d", len(marks), err, 2*share)
	}
}

// otherRequest names another path, method or host than the proxy checks.
func otherRequest(t *testing.T, croft string) {
	service := newUpstream(t)
	p := startProxy(t, croft, service.url, "--host", "orders.example")
	for _, c := range []struct {
		request string
		want    int
	}{
		{proxied("PUT", "/r/1", newerStamp, "X-Original-URL: /r/2"), 400},
		{proxied("PUT", "/r/1", newerStamp, "X-Rewrite-URL: /r/2"), 400},
		{proxied("GET", "/r/1", "", "X-HTTP-Method-Override: DELETE"), 400},
		{proxied("GET", "/r/1", "", "X_HTTP_Method: DELETE"), 400},
		{proxied("GET", "/r/1", "", "Content_Length: 40"), 400},
		{proxied("PUT", "/r/%252e%252e", newerStamp), 400},
		{proxied("PUT", "/r/%2531", newerStamp), 400},
		{"GET /r/1 HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
		{"PUT /r/1 HTTP/1.1\r\nHost: evil.example\r\nCroft-Stamp: " + newerStamp + "\r\n\r\n", 421},
	} {
		if status, body := p.send(c.request); status != c.want {
			t.Errorf("%.60q: %d %s, want %d", c.request, status, body, c.want)
		}
	}
	if service.journal() != "" {
		t.Errorf("the service saw %s", service.journal())
	}
	if status, body := p.send("GET /r/1 HTTP/1.1\r\nHost: orders.example\r\n\r\n"); status != http.StatusOK {
		t.Errorf("a name that is allowed: %d %s", status, body)
	}
}

// readErrors looks for internal details in the proxy's error messages.
func readErrors(t *testing.T, croft string) {
	dead := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	p := startProxy(t, croft, "http://"+dead, "--settle", "1s", "--answer-within", "1s")
	told := map[string]string{}
	_, told["a read"] = p.send(proxied("GET", "/r/1", ""))
	_, told["a write"] = p.send(proxied("PUT", "/r/1", newerStamp))
	_, told["a stale write"] = p.send(proxied("PUT", "/r/1", olderStamp))
	if err := os.RemoveAll(filepath.Join(p.dir, "store-marks")); err != nil {
		t.Fatal(err)
	}
	_, told["a write without a mark"] = p.send(proxied("PUT", "/r/2", newerStamp))
	for what, body := range told {
		if !strings.Contains(body, `"detail"`) {
			t.Errorf("%s: %s, want a refusal", what, body)
		}
		for _, secret := range []string{dead, "127.0.0.1", p.dir, "store", "secret-owner"} {
			if strings.Contains(body, secret) {
				t.Errorf("%s: the client is told %q: %s", what, secret, body)
			}
		}
	}
}

// readMetrics looks where metrics are served if only a port was given. On Linux
// all of 127.0.0.0/8 is local, so a second address shows a listener on all
// addresses.
func readMetrics(t *testing.T, croft string) {
	p := startProxy(t, croft, newUpstream(t).url, "--metrics", ":0")
	said, err := os.ReadFile(filepath.Join(p.dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`metrics at http://127\.0\.0\.1:(\d+)/metrics`).FindSubmatch(said)
	if found == nil {
		t.Fatalf("the proxy says %s, want metrics on the loopback address", said)
	}
	port := string(found[1])
	resp, err := http.Get("http://127.0.0.1:" + port + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("on the loopback address: %s", resp.Status)
	}
	if conn, err := net.Dial("tcp", "127.0.0.2:"+port); err == nil {
		_ = conn.Close()
		t.Errorf("metrics are served on another address, too")
	}
}
