package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission/overhttp"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// web is an upstream over HTTP with a proxy in front.
type web struct {
	t     *testing.T
	proxy *Proxy
	url   string
	files *files
	held  chan string   // the ids of calls of the tool hold
	free  chan struct{} // ends one call of the tool hold

	mu      sync.Mutex
	seen    []*http.Request // with their bodies
	replays map[string]string
}

// web starts an upstream and a proxy.
func (w *world) web(t *testing.T, change func(*ProxyOptions)) *web {
	t.Helper()
	u := &web{
		t: t, files: &w.files, held: make(chan string, 100), free: make(chan struct{}, 100),
		replays: map[string]string{},
	}
	service := httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(service.Close)
	t.Cleanup(func() { close(u.free) })
	o := ProxyOptions{Options: Options{
		Marks: w.open, Client: w.client(t, "proxy"), TTL: time.Minute, Settle: time.Hour,
		Wait: testenv.Patience, AnswerWithin: testenv.Patience,
	}}
	if change != nil {
		change(&o)
	}
	to, err := url.Parse(service.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	if u.proxy, err = NewProxy(to, o); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(u.proxy)
	u.url = front.URL + "/mcp"
	t.Cleanup(func() {
		front.CloseClientConnections()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = u.proxy.Close(ctx)
		front.Close()
	})
	return u
}

// sees returns what the upstream has got since the last call: a line for each
// request, its body.
func (u *web) sees() string {
	var lines []string
	for _, r := range u.requests() {
		text, _ := io.ReadAll(r.Body)
		lines = append(lines, r.Method+" "+string(text))
	}
	return strings.Join(lines, "\n")
}

// requests returns the requests since the last call.
func (u *web) requests() []*http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := u.seen
	u.seen = nil
	return seen
}

// serve is the upstream.
func (u *web) serve(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	kept := r.Clone(context.Background())
	kept.Body = io.NopCloser(bytes.NewReader(text))
	u.mu.Lock()
	u.seen = append(u.seen, kept)
	replay := u.replays[r.Header.Get("Last-Event-Id")]
	u.mu.Unlock()
	control := http.NewResponseController(w)
	events := func(text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		_ = control.Flush()
	}
	switch r.Method {
	case http.MethodGet:
		if replay == "" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		events(replay)
		return
	case http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments struct{ Path, Text any }
		}
	}
	if err := json.Unmarshal(text, &m); err != nil || m.ID == nil || m.Method == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	id, args := string(m.ID), m.Params.Arguments
	result := func(result string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}` }
	say := func(text string) string { return result(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text)) }
	answer := func(text string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
	const progress = `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}` + "\n\n"
	switch m.Method + " " + m.Params.Name {
	case "tools/call write_file":
		u.files.write(fmt.Sprint(args.Path), fmt.Sprint(args.Text))
		answer(say("written"))
	case "tools/call read_file":
		answer(say(u.files.read(fmt.Sprint(args.Path))))
	case "tools/call hold":
		u.held <- id
		select {
		case <-u.free:
		case <-r.Context().Done():
			return
		}
		answer(say("done"))
	case "tools/call stream":
		events(": alive\n\n" + progress + "id: e1\nevent: message\ndata: " + say("streamed") + "\n\n")
	case "tools/call slow stream":
		events("id: e1\ndata:\n\n")
		u.held <- id
		<-u.free
		events("id: e2\ndata: " + say("streamed") + "\n\n")
	case "tools/call poll":
		u.mu.Lock()
		u.replays["p1"] = "id: p2\n" + progress
		u.replays["p2"] = "id: p3\ndata: " + say("polled") + "\n\n"
		u.mu.Unlock()
		events("id: p1\nretry: 1\ndata:\n\n")
	case "tools/call bytes": // every byte is a chunk of its own
		for _, c := range []byte("data: " + say("grün 🌱") + "\r\n\r\n") {
			events(string([]byte{c}))
		}
	case "tools/call many events":
		for range 3000 {
			events("data: " + strings.Replace(result(`{}`), `"result":{}`, `"method":"notifications/x"`, 1) + "\n\n")
		}
		events(progress + "data: " + say("after all") + "\n\n")
	case "tools/call flood":
		for range 8 {
			events(`data: {"jsonrpc":"2.0","method":"notifications/x","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}` + "\n\n")
		}
		events("data: " + say("after all") + "\n\n")
	case "tools/call many values":
		answer(result(`{"x":[` + strings.Repeat("0,", 300_000) + `0]}`))
	case "tools/call stream of many values":
		events(progress + "data: " + result(`{"x":[`+strings.Repeat("0,", 300_000)+`0]}`) + "\n\n")
	case "tools/call huge event":
		events("data: {\"x\":\"" + strings.Repeat("x", MaxFrame) + "\n\n" + progress + "data: " + say("small") + "\n\n")
	case "tools/call cut":
		events(progress + "data: " + say("never")[:20])
		panic(http.ErrAbortHandler)
	case "tools/call cut answer":
		w.Header().Set("Content-Length", "1000")
		answer(say("never"))
		panic(http.ErrAbortHandler)
	case "tools/call empty stream":
		events(progress)
	case "tools/call garbage":
		answer("hello")
	case "tools/call html":
		_, _ = io.WriteString(w, "<html>")
	case "tools/call accepted":
		w.WriteHeader(http.StatusAccepted)
	case "tools/call another id":
		answer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	case "tools/call no HTTP": // the server repeats what it got
		conn, _, err := control.Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, r.Header.Get("Authorization")+"\r\n\r\n")
			_ = conn.Close()
		}
	case "tools/call die":
		panic(http.ErrAbortHandler)
	case "tools/call task":
		answer(result(`{"resultType":"task","taskId":"t"}`))
	case "tools/call redirect":
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case "tools/call gateway":
		w.WriteHeader(http.StatusBadGateway)
	case "tools/call unauthorized":
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	case "tools/call gone":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	case "tools/call unreadable id":
		answer(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}`)
	case "initialize ":
		w.Header().Set("Mcp-Session-Id", "s-1")
		answer(result(`{"capabilities":{"tools":{},"tasks":{}}}`))
	case "initialize two sessions":
		w.Header()["Mcp-Session-Id"] = []string{"s-1", "s-2"}
		answer(result(`{}`))
	default:
		answer(result(`{}`))
	}
}

// said is an answer of the proxy.
type said struct {
	status   int
	header   http.Header
	text     string
	messages []message
}

func (a said) last(t *testing.T) message {
	t.Helper()
	if len(a.messages) == 0 {
		t.Fatalf("the answer has no message: %d %s", a.status, a.text)
	}
	return a.messages[len(a.messages)-1]
}

// ask sends a request. The headers are pairs. An empty value removes a header.
func (u *web) ask(method, body string, headers ...string) said {
	u.t.Helper()
	req, err := http.NewRequestWithContext(u.t.Context(), method, u.url, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	if body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	for pair := range slices.Chunk(headers, 2) {
		if req.Header.Del(pair[0]); pair[1] != "" {
			req.Header.Set(pair[0], pair[1])
		}
	}
	return u.do(req)
}

func (u *web) do(req *http.Request) said {
	u.t.Helper()
	client := &http.Client{
		Timeout:       testenv.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Errorf("the answer: %v", err)
	}
	a := said{status: resp.StatusCode, header: resp.Header, text: string(text)}
	switch {
	case isType(resp.Header, "application/json"):
		a.messages = append(a.messages, parsed(u.t, text))
	case isType(resp.Header, eventStream):
		for stream := newEvents(bytes.NewReader(text)); ; {
			e, err := stream.next()
			if err != nil {
				break
			}
			if e.isMessage() {
				a.messages = append(a.messages, parsed(u.t, e.data))
			}
		}
	}
	return a
}

// parsed reads a message of the proxy, whose id may be null.
func parsed(t *testing.T, text []byte) message {
	t.Helper()
	m, err := decode(text)
	if err != nil && !bytes.Contains(text, []byte(`"id":null,"error"`)) {
		t.Errorf("the client got %s: %v", text, err)
	}
	return m
}

// toolText is a call of a tool.
func toolText(id, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name, arguments)
}

// tool calls a tool under a stamp, with other headers.
func (u *web) tool(stamp fence.Stamp, name, arguments string, headers ...string) string {
	u.t.Helper()
	if stamp != (fence.Stamp{}) {
		headers = append([]string{overhttp.Header, stamp.String()}, headers...)
	}
	return outcome(u.ask("POST", toolText("1", name, arguments), headers...).last(u.t))
}

// inside starts a call of the tool hold and waits until the upstream has it.
// The channel gets its outcome.
func (u *web) inside(stamp fence.Stamp, id string, headers ...string) <-chan string {
	u.t.Helper()
	got := make(chan string, 1)
	go func() {
		a := u.ask("POST", toolText(id, "hold", "{}"), append([]string{overhttp.Header, stamp.String()}, headers...)...)
		got <- outcome(a.last(u.t))
	}()
	u.waitHeld()
	return got
}

func (u *web) waitHeld() {
	u.t.Helper()
	select {
	case <-u.held:
	case <-time.After(testenv.Patience):
		u.t.Fatal("the upstream does not get the call")
	}
}

// receive returns the next outcome.
func receive(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(testenv.Patience):
		t.Fatal("no answer came")
		return ""
	}
}
