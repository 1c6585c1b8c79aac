package mcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission/overhttp"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// modern are the headers of a request of revision 2026-07-28.
func modern(method, name string) []string {
	return []string{"MCP-Protocol-Version", newest, "Mcp-Method", method, "Mcp-Name", name}
}

const inMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`

// TestBothErasPassOverHTTP: with sessions and without. No header of the client
// reaches the server but those of the protocol.
func TestBothErasPassOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, func(o *ProxyOptions) { o.Reads = []string{"stream", "read_file"} })
	const begin = `{"jsonrpc":"2.0","id":"\u0061","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`
	a := u.ask("POST", begin)
	want(t, "the session", a.header.Get("Mcp-Session-Id"), "s-1")
	want(t, "the answer", a.text, `{"jsonrpc":"2.0","id":"a","result":{"capabilities":{"tools":{}}}}`)
	want(t, "the server got", u.sees(), "POST "+strings.Replace(begin, `\u0061`, "a", 1))
	in := []string{
		"Mcp-Session-Id", "s-1", "MCP-Protocol-Version", "2025-11-25", "Authorization", "Bearer mine", "Cookie", "a=b",
		"Croft-Stamp", w.term(t, "ann").String(), "X-Forwarded-For", "1.2.3.4", "Last-Event-ID", "e9",
	}
	if a := u.ask("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, in...); a.status != 202 || a.text != "" {
		t.Errorf("a notification was answered with %d %s", a.status, a.text)
	}
	a = u.ask("POST", `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"stream"}}`, in...)
	want(t, "the stream", a.text, ":\n\n"+
		"event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n"+
		"id: e1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"streamed\"}]}}\n\n")
	if a := u.ask("GET", "", in...); a.status != http.StatusMethodNotAllowed {
		t.Errorf("a stream that the server does not have: %d", a.status)
	}
	if a := u.ask("DELETE", "", in...); a.status != 204 {
		t.Errorf("the end of the session: %d", a.status)
	}
	for _, r := range u.requests() {
		for name := range r.Header {
			switch name {
			case "Accept", "Accept-Encoding", "Content-Length", "Content-Type", "Mcp-Protocol-Version", "Mcp-Session-Id", "User-Agent":
			case "Last-Event-Id":
				want(t, "the request that can resume", r.Method, "GET")
			default:
				t.Errorf("the server got the header %s: %s", name, r.Header.Get(name))
			}
		}
		want(t, "the session at the server", r.Header.Get("Mcp-Session-Id"), "s-1")
		want(t, "the revision at the server", r.Header.Get("Mcp-Protocol-Version"), "2025-11-25")
	}

	headers := append(modern("tools/call", "=?base64?cmVhZF9maWxl?="), "Mcp-Param-Path", "f", "Mcp-Session-Id", "s-1")
	a = u.ask("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"f"},`+inMeta+`}}`, headers...)
	want(t, "without a session", outcome(a.last(t)), "")
	r := u.requests()[0]
	for name, value := range map[string]string{
		"Mcp-Method": "tools/call", "Mcp-Name": "read_file", "Mcp-Param-Path": "f", "Mcp-Protocol-Version": newest, "Mcp-Session-Id": "",
	} {
		want(t, "the server's "+name, r.Header.Get(name), value)
	}
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		if a := u.ask(method, "", "MCP-Protocol-Version", newest); a.status != http.StatusMethodNotAllowed {
			t.Errorf("%s without sessions: %d", method, a.status)
		}
	}
	want(t, "the server got", u.sees(), "")
}

// TestAReplacedAgentsCallBouncesOverHTTP: one proxy serves several agents, and
// knows them by their stamps.
func TestAReplacedAgentsCallBouncesOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, func(o *ProxyOptions) { o.Current, o.Reads = w.follower(t), []string{"read_file"} })
	ann := w.term(t, "ann")
	want(t, "ann", u.tool(ann, "write_file", `{"path":"f","text":"ann's"}`), "written")
	bob := w.term(t, "bob")
	u.until("the proxy learns of bob", func() bool { return u.tool(ann, "write_file", "{}") == "not_owned" })
	u.sees()
	a := u.ask("POST", toolText("7", "write_file", `{"path":"f"}`), overhttp.Header, ann.String())
	m := a.last(t)
	want(t, "ann, before bob has written", outcome(m), "not_owned")
	if a.status != 200 || m.id != "7" || !strings.Contains(a.text, `"isError":true`) || !strings.Contains(a.text, "belongs to bob") {
		t.Errorf("the refusal is %d %s", a.status, a.text)
	}
	want(t, "the server saw", u.sees(), "")
	want(t, "bob", u.tool(bob, "write_file", `{"path":"f","text":"bob's"}`), "written")
	want(t, "the file", u.tool(ann, "read_file", `{"path":"f"}`), "bob's")
}

// TestAnHTTPCallNeedsOneStamp: in its header, and nowhere else.
func TestAnHTTPCallNeedsOneStamp(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	stamp := w.term(t, "ann")
	want(t, "no stamp", u.tool(fence.Stamp{}, "write_file", `{"croft":"`+stamp.String()+`"}`), "invalid")
	want(t, "no stamp that can be read", u.tool(fence.Stamp{}, "write_file", `{}`, overhttp.Header, "x"), "invalid")
	forged := stamp
	forged.Token = 1<<53 - 1
	want(t, "a token of the far future", u.tool(forged, "write_file", `{}`), "invalid")
	req, err := http.NewRequestWithContext(t.Context(), "POST", u.url, strings.NewReader(toolText("1", "write_file", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, overhttp.Header: {stamp.String(), stamp.String()}}
	want(t, "two stamps", outcome(u.do(req).last(t)), "invalid")
	want(t, "the server saw", u.sees(), "")
	want(t, "the owner", u.tool(stamp, "write_file", `{}`), "written")
	if seen := u.sees(); strings.Contains(seen, "croft:") || !strings.Contains(seen, `"id":"croft-`) {
		t.Errorf("the server saw %s", seen)
	}
}

// TestHTTPDoubtClosesTheResource: whatever the reason, and the next call waits
// until the resource has settled.
func TestHTTPDoubtClosesTheResource(t *testing.T) {
	t.Parallel()
	for name, within := range map[string]time.Duration{
		"die": 0, "cut": 0, "cut answer": 0, "empty stream": 0, "garbage": 0, "html": 0, "accepted": 0, "another id": 0,
		"task": 0, "gateway": 0, "hold": soon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			u := w.web(t, func(o *ProxyOptions) {
				if o.Wait = soon; within != 0 {
					o.AnswerWithin = within
				}
			})
			stamp := w.term(t, "ann")
			a := u.ask("POST", toolText("1", name, "{}"), overhttp.Header, stamp.String())
			want(t, "the call", outcome(a.last(t)), "unknown")
			if !strings.Contains(a.text, `"sent":true`) {
				t.Errorf("the call was answered with %s", a.text)
			}
			u.sees()
			next := u.ask("POST", toolText("1", "write_file", "{}"), overhttp.Header, stamp.String())
			if want(t, "the next call", outcome(next.last(t)), "unknown"); !strings.Contains(next.text, "is closed for") {
				t.Errorf("the next call was answered with %s", next.text)
			}
			want(t, "the server saw", u.sees(), "")
		})
	}
}

// TestAnAnswerIsInNoDoubt, whatever it says.
func TestAnAnswerIsInNoDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	stamp := w.term(t, "ann")
	for name, c := range map[string]struct {
		status int
		text   string
	}{
		"stream":        {200, "streamed"},
		"bytes":         {200, "grün 🌱"},
		"huge event":    {200, "small"},
		"many events":   {200, "after all"},
		"poll":          {200, "polled"},
		"redirect":      {502, "follows no redirect"},
		"unauthorized":  {502, "credential (401)"},
		"gone":          {404, `"code":-32001,"message":"Session not found"`},
		"unreadable id": {200, `"id":1,"error":{"code":-32600,"message":"what?"}`},
	} {
		a := u.ask("POST", toolText("1", name, "{}"), overhttp.Header, stamp.String())
		if a.status != c.status || !strings.Contains(a.text, c.text) {
			t.Errorf("%s was answered with %d %.300s", name, a.status, a.text)
		}
		if a.header.Get("Location") != "" || a.header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: the client got the headers %v", name, a.header)
		}
		want(t, "the next call, after "+name, u.tool(stamp, "write_file", "{}"), "written")
	}
	for _, r := range u.requests() {
		if r.URL.Path != "/mcp" {
			t.Errorf("the proxy has called %s", r.URL)
		}
	}
}

// TestAnHTTPWriteGoesOnWithoutItsClient: a sent write cannot be taken back. The
// next one waits for its answer.
func TestAnHTTPWriteGoesOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	stamp := w.term(t, "ann")
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", u.url, strings.NewReader(toolText("1", "hold", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, overhttp.Header: {stamp.String()}}
	left := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	u.waitHeld()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	next := make(chan string, 1)
	go func() { next <- u.tool(stamp, "write_file", `{"path":"f","text":"next"}`) }()
	u.until("the next write waits", func() bool {
		i, _ := u.proxy.gate.Inspect("mcp/tasks/a")
		return i.Waiting == 1
	})
	want(t, "the file", u.files.read("f"), "")
	u.free <- struct{}{}
	want(t, "the next write", receive(t, next), "written")
}

// until waits for something.
func (u *web) until(what string, is func() bool) {
	u.t.Helper()
	for end := time.Now().Add(testenv.Patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			u.t.Fatalf("%s: it does not happen", what)
		}
	}
}

// TestAnHTTPCallCanBeCancelled in its session: one that waits is not sent, and
// one that was sent is in doubt unless the server says how it has ended.
func TestAnHTTPCallCanBeCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	stamp := w.term(t, "ann")
	in := []string{"Mcp-Session-Id", "s-1"}
	first := u.inside(stamp, `"x"`, in...)
	waits := make(chan string, 1)
	go func() {
		waits <- outcome(u.ask("POST", toolText(`"y"`, "hold", "{}"), append(in, overhttp.Header, stamp.String())...).last(t))
	}()
	u.until("the second write waits", func() bool {
		i, _ := u.proxy.gate.Inspect("mcp/tasks/a")
		return i.Waiting == 1
	})
	again := u.ask("POST", toolText(`"x"`, "write_file", "{}"), append(in, overhttp.Header, stamp.String())...)
	if again.status != 400 {
		t.Errorf("an id that is in use was answered with %d %s", again.status, again.text)
	}
	u.sees()
	if a := u.ask("POST", strings.Replace(cancel, `"x"`, `"y"`, 1), in...); a.status != 202 {
		t.Errorf("a cancellation was answered with %d %s", a.status, a.text)
	}
	if got := receive(t, waits); got != "unknown" && got != "held" {
		t.Errorf("a call that waited: %s", got)
	}
	want(t, "the server saw", u.sees(), "")
	u.ask("POST", strings.Replace(cancel, `"x"`, `"x"`, 1), "Mcp-Session-Id", "another")
	u.ask("POST", cancel, in...)
	if seen := u.sees(); strings.Count(seen, `"requestId":"croft-`) != 1 {
		t.Errorf("the server saw %s", seen)
	}
	want(t, "the call that was sent", receive(t, first), "unknown")
	other := w.web(t, func(o *ProxyOptions) { o.Wait = soon })
	want(t, "a call at another proxy", other.tool(stamp, "write_file", "{}"), "held")
}

// TestAClientResumesTheStreamOfAWrite: it asks for what came after the event
// that it has seen last. The proxy still reads the stream, so the client waits.
func TestAClientResumesTheStreamOfAWrite(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	stamp := w.term(t, "ann")
	in := []string{"Mcp-Session-Id", "s-1", overhttp.Header, stamp.String()}
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", u.url, strings.NewReader(toolText("17", "slow stream", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, overhttp.Header: {stamp.String()}, "Mcp-Session-Id": {"s-1"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 12)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "id: e1\ndata:" {
		t.Fatalf("%q: %v", first, err)
	}
	u.waitHeld()
	leave()
	seen := u.requests()
	text, _ := io.ReadAll(seen[0].Body)
	sent, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	u.replays["e1"] = "id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":" + sent.id + ",\"result\":{\"replayed\":true}}\n\n"
	u.mu.Unlock()
	got := make(chan said, 1)
	go func() { got <- u.ask("GET", "", append(in, "Last-Event-ID", "e1")...) }()
	select {
	case <-got:
		t.Error("the server gives the stream away while the proxy reads it")
	case <-time.After(50 * time.Millisecond):
	}
	want(t, "the server saw meanwhile", u.sees(), "")
	u.free <- struct{}{}
	select {
	case a := <-got:
		want(t, "the rest of the stream", a.text, "id: e2\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":17,\"result\":{\"replayed\":true}}\n\n")
	case <-time.After(testenv.Patience):
		t.Error("the client gets nothing")
	}
}

// TestASlowClientKeepsNothingFromOthers: it loses its answer.
func TestASlowClientKeepsNothingFromOthers(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	u.proxy.stall = soon
	stamp := w.term(t, "ann")
	req, err := http.NewRequestWithContext(t.Context(), "POST", u.url, strings.NewReader(toolText("1", "flood", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, overhttp.Header: {stamp.String()}}
	small := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4096)
		}
		return conn, err
	}}
	resp, err := small.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // and reads nothing
	want(t, "the next write", u.tool(stamp, "write_file", "{}"), "written")
}

// TestAnUpstreamThatIsDownIsInNoDoubt: nothing was sent.
func TestAnUpstreamThatIsDownIsInNoDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	u.proxy.upstream = &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/mcp"}
	stamp := w.term(t, "ann")
	for range 2 {
		a := u.ask("POST", toolText("1", "write_file", "{}"), overhttp.Header, stamp.String())
		want(t, "a write", outcome(a.last(t)), "unknown")
		if !strings.Contains(a.text, `"sent":false`) {
			t.Errorf("the call was answered with %s", a.text)
		}
	}
	if a := u.ask("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != http.StatusBadGateway {
		t.Errorf("a read was answered with %d %s", a.status, a.text)
	}
}

// TestAnImpostorGetsNothing: no read and no write goes to a server that does
// not prove its name, and no credential.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	through := func(name string) testenv.Call {
		return func(ctx context.Context, addr string) error {
			w := newWorld()
			u := w.web(t, func(o *ProxyOptions) { o.Reads, o.Wait = []string{"read_file"}, soon })
			u.proxy.upstream = &url.URL{Scheme: "https", Host: addr, Path: "/mcp"}
			req, err := http.NewRequestWithContext(ctx, "POST", u.url, strings.NewReader(toolText("1", name, "{}")))
			if err != nil {
				return err
			}
			req.Header = http.Header{"Content-Type": {"application/json"}, overhttp.Header: {w.term(t, "ann").String()}}
			if a := u.do(req); a.status != 200 || outcome(a.last(t)) == "unknown" {
				return errors.New(a.text)
			}
			return nil
		}
	}
	testenv.Impostors(t, map[string]testenv.Call{"a read": through("read_file"), "a write": through("write_file")})
}

// TestAProxyIsAskedForWhatItNeeds: it could not keep its promise otherwise.
func TestAProxyIsAskedForWhatItNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld()
	good := &url.URL{Scheme: "https", Host: "h", Path: "/mcp"}
	for name, c := range map[string]struct {
		to     *url.URL
		change func(*ProxyOptions)
	}{
		"no upstream":           {nil, func(*ProxyOptions) {}},
		"a secret in the URL":   {&url.URL{Scheme: "https", Host: "h", RawQuery: "key=1"}, func(*ProxyOptions) {}},
		"no client":             {good, func(o *ProxyOptions) { o.Client = nil }},
		"a stamp":               {good, func(o *ProxyOptions) { o.Stamp = w.term(t, "ann") }},
		"a settle time":         {good, func(o *ProxyOptions) { o.AnswerWithin, o.Settle = time.Minute, time.Second }},
		"a host with a port":    {good, func(o *ProxyOptions) { o.Hosts = []string{"h:1"} }},
		"no room for a message": {good, func(o *ProxyOptions) { o.MaxBodies = 1 }},
	} {
		o := ProxyOptions{Options: Options{Marks: w.open, Client: w.client(t, "proxy")}}
		c.change(&o)
		if _, err := NewProxy(c.to, o); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
