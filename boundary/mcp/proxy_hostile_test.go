package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission/overhttp"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// dial connects to the proxy.
func (u *web) dial() net.Conn {
	u.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(u.url, "http://"), "/mcp"))
	if err != nil {
		u.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	return conn
}

// raw sends the text of a request and returns the answer's status and body.
func (u *web) raw(text string) (int, string) {
	u.t.Helper()
	conn := u.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		u.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// TestHTTPTricksReachNobody: each of these could mean one thing to the proxy
// and another to the server, or comes from a web page. The server sees none.
func TestHTTPTricksReachNobody(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, nil)
	stamp := w.term(t, "ann").String()
	call := toolText("1", "write_file", `{"path":"f"}`)
	modernCall := strings.Replace(call, `"arguments"`, inMeta+`,"arguments"`, 1)
	const usual = "Host: localhost\r\nContent-Type: application/json\r\n"
	post := func(headers, body string) string {
		return "POST /mcp HTTP/1.1\r\n" + headers + "Croft-Stamp: " + stamp + "\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body
	}
	const newer = usual + "MCP-Protocol-Version: 2026-07-28\r\n"
	for name, c := range map[string]struct {
		text   string
		status int
		code   string
	}{
		"two session ids":           {post(usual+"Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n", call), 400, `"id":1,"error":{"code":-32020`},
		"a session id with a space": {post(usual+"Mcp-Session-Id: a b\r\n", call), 400, "-32020"},
		"a session id of bytes":     {post(usual+"Mcp-Session-Id: \xff\r\n", call), 400, "-32020"},
		"a long session id":         {post(usual+"Mcp-Session-Id: "+strings.Repeat("x", 2000)+"\r\n", call), 400, "-32020"},
		"two revisions":             {post(newer+"MCP-Protocol-Version: 2025-11-25\r\n", modernCall), 400, "-32020"},
		"two types":                 {post(usual+"Content-Type: text/plain\r\n", call), 400, "-32020"},
		"a header that goes on":     {post(usual+"Mcp-Session-Id: a\r\n b\r\n", call), 400, ""},
		"a carriage return":         {post(usual+"Mcp-Session-Id: a\rb\r\n", call), 400, ""},
		"no such revision":          {post(usual+"MCP-Protocol-Version: 2027-01-01\r\n", call), 400, `"id":1,"error":{"code":-32022`},
		"a revision that is none":   {post(usual+"MCP-Protocol-Version: draft\r\n", call), 400, "-32022"},
		"a revision in one place":   {post(newer+"Mcp-Method: tools/call\r\nMcp-Name: write_file\r\n", call), 400, `"id":1,"error":{"code":-32602`},
		"a revision in the message": {post(usual, modernCall), 400, "-32020"},
		"an old one in the header":  {post(usual+"MCP-Protocol-Version: 2025-11-25\r\n", modernCall), 400, "-32020"},
		"no method":                 {post(newer+"Mcp-Name: write_file\r\n", modernCall), 400, "-32020"},
		"another method":            {post(newer+"Mcp-Method: tools/list\r\nMcp-Name: write_file\r\n", modernCall), 400, "-32020"},
		"a method in capitals":      {post(newer+"Mcp-Method: Tools/Call\r\nMcp-Name: write_file\r\n", modernCall), 400, "-32020"},
		"no name":                   {post(newer+"Mcp-Method: tools/call\r\n", modernCall), 400, "-32020"},
		"another name":              {post(newer+"Mcp-Method: tools/call\r\nMcp-Name: read_file\r\n", modernCall), 400, "-32020"},
		"two names":                 {post(newer+"Mcp-Method: tools/call\r\nMcp-Name: write_file\r\nMcp-Name: write_file\r\n", modernCall), 400, "-32020"},
		"a name badly encoded":      {post(newer+"Mcp-Method: tools/call\r\nMcp-Name: =?base64?d3JpdGVfZmlsZR==?=\r\n", modernCall), 400, "-32020"},
		"another name, encoded":     {post(newer+"Mcp-Method: tools/call\r\nMcp-Name: =?base64?cmVhZF9maWxl?=\r\n", modernCall), 400, "-32020"},
		"another argument":          {post(newer+"Mcp-Method: tools/call\r\nMcp-Name: write_file\r\nMcp-Param-Path: g\r\n", modernCall), 400, "-32020"},
		"an argument twice":         {post(newer+"Mcp-Method: tools/call\r\nMcp-Name: write_file\r\nMcp-Param-Path: f\r\nMcp-Param-Path: f\r\n", modernCall), 400, "-32020"},
		"an old call, another name": {post(usual+"Mcp-Name: read_file\r\n", call), 400, "-32020"},
		"an answer without session": {post(newer, `{"jsonrpc":"2.0","id":1,"result":{}}`), 400, "-32600"},
		"a batch":                   {post(usual, "["+call+"]"), 400, "-32600"},
		"two messages":              {post(usual, call+call), 400, "-32600"},
		"no message":                {post(usual, ""), 400, "-32600"},
		"a member twice":            {post(usual, strings.Replace(call, `"name"`, `"name":"read_file","name"`, 1)), 400, "-32600"},
		"a call without an id":      {post(usual, strings.Replace(call, `"id":1,`, "", 1)), 400, "-32600"},
		"a null id":                 {post(usual, strings.Replace(call, `"id":1`, `"id":null`, 1)), 400, "-32600"},
		"a long id":                 {post(usual, strings.Replace(call, `"id":1`, `"id":"`+strings.Repeat("x", 2000)+`"`, 1)), 400, "-32600"},
		"an unknown method":         {post(usual, strings.Replace(call, "tools/call", "tools/do", 1)), 200, "-32601"},
		"a method of old":           {post(newer+"Mcp-Method: ping\r\n", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{`+inMeta+`}}`), 404, "-32601"},
		"a method of today":         {post(usual, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`), 200, "-32601"},
		"a form":                    {post("Host: localhost\r\nContent-Type: text/plain\r\n", call), 415, "-32600"},
		"no type":                   {post("Host: localhost\r\n", call), 415, "-32600"},
		"UTF-16":                    {post("Host: localhost\r\nContent-Type: application/json; charset=utf-16\r\n", call), 415, "-32600"},
		"a compressed message":      {post(usual+"Content-Encoding: gzip\r\n", call), 415, "-32600"},
		"a client of JSON alone":    {post(usual+"Accept: application/json\r\n", call), 406, "-32600"},
		"a name of a web page":      {post(strings.Replace(usual, "localhost", "evil.example", 1), call), 421, "-32600"},
		"a web page":                {post(usual+"Origin: http://evil.example\r\n", call), 403, "-32600"},
		"a page at an address":      {post(usual+"Origin: http://203.0.113.5\r\n", call), 403, "-32600"},
		"a page without a host":     {post(usual+"Origin: null\r\n", call), 403, "-32600"},
		"two origins":               {post(usual+"Origin: http://localhost\r\nOrigin: http://evil.example\r\n", call), 403, "-32600"},
		"another path":              {strings.Replace(post(usual, call), "/mcp", "/mcp/..;/admin", 1), 404, "-32600"},
		"an encoded path":           {strings.Replace(post(usual, call), "/mcp", "/%6dcp", 1), 404, "-32600"},
		"a query":                   {strings.Replace(post(usual, call), "/mcp", "/mcp?name=read_file", 1), 404, "-32600"},
		"an empty query":            {strings.Replace(post(usual, call), "/mcp", "/mcp?", 1), 404, "-32600"},
		"another method of HTTP":    {strings.Replace(post(usual, call), "POST", "PUT", 1), 405, "-32600"},
		"a GET with a body":         {strings.Replace(post(usual, call), "POST", "GET", 1), 406, "-32600"},
		"two lengths":               {post(usual+"Content-Length: 3\r\n", call), 400, ""},
		"a long message":            {post(usual, strings.Repeat(" ", MaxFrame)+call), 413, "-32600"},
	} {
		status, body := u.raw(c.text)
		if status != c.status || !strings.Contains(body, c.code) {
			t.Errorf("%s was answered with %d %.300s, want %d %s", name, status, body, c.status, c.code)
		}
		want(t, "the server saw, of "+name, u.sees(), "")
	}
	// These are read as one request, and the proxy writes its headers anew.
	if status, _ := u.raw(post(usual+"Transfer-Encoding: chunked\r\n", "0\r\n\r\n")); status != 400 {
		t.Errorf("a length and chunks: %d", status)
	}
	want(t, "the server saw", u.sees(), "")
	if status, body := u.raw(post(usual+"Mcp-Session-Id: a\nEvil: b\r\nUpgrade: websocket\r\nConnection: upgrade\r\n", call)); status != 200 {
		t.Errorf("a call with other headers: %d %s", status, body)
	}
	for _, r := range u.requests() {
		if r.Header.Get("Evil") != "" || r.Header.Get("Upgrade") != "" || r.Header.Get("Connection") != "close" {
			t.Errorf("the server got %v", r.Header)
		}
	}
	for _, origin := range []string{"http://localhost:6274", "http://127.0.0.1"} {
		want(t, "a page of this machine, "+origin, u.tool(fence.Stamp{}, "write_file", "{}", overhttp.Header, stamp, "Origin", origin), "written")
	}
}

// TestOnlyDeclaredNamesMayCall: a page of a host that the operator has named,
// and the host itself.
func TestOnlyDeclaredNamesMayCall(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, func(o *ProxyOptions) { o.Hosts = []string{"tools.example"} })
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	const head = "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 40\r\n"
	for headers, want := range map[string]int{
		"Host: tools.example\r\nOrigin: https://tools.example\r\n": 200,
		"Host: localhost\r\nOrigin: https://tools.example:8\r\n":   200,
		"Host: other.example\r\n":                                  421,
		"Host: tools.example\r\nOrigin: https://other.example\r\n": 403,
	} {
		if status, body := u.raw(head + headers + "\r\n" + ping); status != want {
			t.Errorf("%q was answered with %d %s, want %d", headers, status, body, want)
		}
	}
}

// TestAStreamIsReadAsItIsWritten: the proxy finds the same messages as the
// client would, however the stream is cut.
func TestAStreamIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	long := "data: " + strings.Repeat("x", 2000) + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"all line ends":       {"data: a\r\n\r\ndata: b\n\ndata: c\r\rdata: d\n\n", "a|b|c|d"},
		"several lines":       {"data: a\ndata:b\ndata\n\n", "a\nb\n"},
		"comments":            {": x\n\n:\ndata: a\n: y\n\n", "#|#|a"},
		"no end":              {"data: a\n\ndata: b\n", "a"},
		"a mark at the start": {"\ufeffdata: a\n\n\ufeffdata: b\n\n", "a|"},
		"other events":        {"event: endpoint\ndata: /x\n\nevent: message\ndata: a\n\n", "endpoint:/x|message:a"},
		"an id and a time":    {"id: 7\nretry: 10\ndata:\n\n", "7/10"},
		"an id of control":    {"id: a\x00b\ndata: a\n\nid: " + strings.Repeat("x", 1100) + "\ndata: b\n\n", "a|b"},
		"a time that is none": {"retry: -1\nretry: 99999999999\ndata: a\n\n", "a"},
		"a line too long":     {long + "\ndata: a\n\n", "!|a"},
		"an event too long":   {long[:len(long)/2] + "\n" + long[:len(long)/2] + "\ndata: x\n\n\ndata: a\n\n", "!|a"},
	} {
		var got []string
		stream := newEvents(io.MultiReader(strings.NewReader(c.text[:1]), strings.NewReader(c.text[1:])))
		for stream.most = 1900; ; {
			e, err := stream.next()
			if errors.Is(err, io.EOF) {
				break
			}
			text := string(e.data)
			switch {
			case err != nil:
				text = "!"
			case e.comment:
				text = "#"
			case e.name != "":
				text = e.name + ":" + text
			case e.id != "":
				text = e.id + "/" + e.retry + text
			}
			got = append(got, text)
		}
		want(t, name, strings.Join(got, "|"), c.want)
	}
}

// waitUncounted waits until no message is counted any more. A client may have
// its answer before that.
func (u *web) waitUncounted() {
	u.t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		_, _, bytes := u.proxy.gate.Used("")
		if bytes == 0 {
			return
		}
		if time.Since(start) > testenv.Patience {
			u.t.Fatalf("%d bytes are still counted", bytes)
		}
	}
}

// TestMessagesOfClientsAreBounded: those that are kept, in all.
func TestMessagesOfClientsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, func(o *ProxyOptions) { o.MaxBodies = MaxFrame })
	first := u.inside(w.term(t, "ann"), "1")
	long := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", MaxFrame-100) + `"}}`
	if a := u.ask("POST", long); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("a message without room was answered with %d %.200s", a.status, a.text)
	}
	u.free <- struct{}{}
	want(t, "the first", receive(t, first), "done")
	if a := u.ask("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != 200 {
		t.Errorf("a short message was answered with %d %.200s", a.status, a.text)
	}
	u.waitUncounted()
}

// TestARefusedMessageIsNotAwaited: a client that never sends the rest of a
// message is answered, and keeps neither a request nor a connection.
func TestARefusedMessageIsNotAwaited(t *testing.T) {
	t.Parallel()
	u := newWorld().web(t, nil)
	const local, length = " /mcp HTTP/1.1\r\nHost: localhost\r\n", "Content-Length: 1000\r\n\r\n"
	for text, want := range map[string]int{
		"POST" + local + "Content-Type: text/plain\r\n" + length:                           415,
		"POST /mcp HTTP/1.1\r\nHost: evil.example\r\n" + length:                            421,
		"POST" + local + "Origin: http://evil.example\r\n" + length:                        403,
		"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n": 404,
		"GET" + local + "Mcp-Session-Id: a b\r\n" + length:                                 400,
		"GET" + local + length:    406,
		"DELETE" + local + length: 204,
	} {
		conn := u.dial()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != want || !resp.Close {
			t.Errorf("%q was answered with %v %v, want %d and the end of the connection", text, resp, err, want)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		_ = conn.Close()
	}
	if a := u.ask("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != 200 || a.header.Get("Connection") != "" {
		t.Errorf("a whole message: %d %v", a.status, a.header)
	}
}

// TestManyValuesAreBounded: a value takes many times the memory of its text.
func TestManyValuesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, func(o *ProxyOptions) { o.MaxBodies = MaxFrame })
	with := func(values string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":` + values + `}}`
	}
	many := strings.Repeat("{},", 150_000)
	for name, c := range map[string]struct {
		values string
		status int
	}{
		"too many at all":        {"[" + strings.Repeat("0,", mostValues) + "0]", http.StatusRequestEntityTooLarge},
		"too many for the room":  {"[" + strings.Repeat(many, 2) + "0]", http.StatusServiceUnavailable},
		"many":                   {"[" + strings.Repeat("0,", 1000) + "0]", http.StatusOK},
		"commas that are a text": {`"\"` + strings.Repeat(",[", 500_000) + `"`, http.StatusOK},
	} {
		if a := u.ask("POST", with(c.values)); a.status != c.status {
			t.Errorf("%s: %d %.200s, want %d", name, a.status, a.text, c.status)
		}
	}
	u.waitUncounted()
}

// TestAnswersOfReadsAreBounded: a client that asks for much and reads nothing
// uses up its room. A write is answered in any case.
func TestAnswersOfReadsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann").String()
	for _, tool := range []string{"many values", "stream of many values"} {
		reads := w.web(t, func(o *ProxyOptions) { o.MaxBodies, o.Reads = MaxFrame, []string{tool} })
		a := reads.ask("POST", toolText("1", tool, "{}"))
		if refused := a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != ""; strings.Contains(a.text, "0,0") ||
			!refused && tool == "many values" {
			t.Errorf("%s: %d %.100s", tool, a.status, a.text)
		}
		reads.waitUncounted()
		writes := w.web(t, func(o *ProxyOptions) { o.MaxBodies = MaxFrame })
		if a := writes.ask("POST", toolText("1", tool, "{}"), overhttp.Header, stamp); !strings.Contains(a.text, "0,0") {
			t.Errorf("a write, %s: %d %.300s", tool, a.status, a.text)
		}
	}
}

// TestAnEventIsCountedWhileItIsKept, and not longer.
func TestAnEventIsCountedWhileItIsKept(t *testing.T) {
	t.Parallel()
	var kept, most int64
	stream := newEvents(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n\n", 50)))
	stream.keep = func(n int64) error { kept += n; most = max(most, kept); return nil }
	stream.drop = func(n int64) { kept -= n }
	for err := error(nil); err == nil; _, err = stream.next() {
	}
	if kept != 0 || most < 1000 || most > 1100 {
		t.Errorf("%d bytes are counted, and %d were at most", kept, most)
	}
	stream = newEvents(strings.NewReader("data: x\n\n"))
	stream.keep = func(int64) error { return errors.New("full") }
	if _, err := stream.next(); !errors.Is(err, errNoRoom) {
		t.Errorf("without room: %v", err)
	}
}

// TestNoValueIsUncounted: whatever the parser has made of a text before it
// finds a flaw.
func TestNoValueIsUncounted(t *testing.T) {
	t.Parallel()
	var size func(any) int
	size = func(value any) int {
		n := 1
		switch v := value.(type) {
		case object:
			for _, m := range v {
				n += 1 + size(m.value)
			}
		case list:
			for _, each := range v {
				n += size(each)
			}
		}
		return n
	}
	for _, text := range []string{
		`0`, `[]`, `[0]`, `[0,[{},[]]]`, `{}`, `{"a":0}`, `{"a":[{"b":"\\"},{"c\"":"\\\""}],"d":{"e":[1,"[,{:"]}}`, `"\"[,"`,
	} {
		value, err := parse([]byte(text))
		if err != nil || countValues([]byte(text)) < size(value) {
			t.Errorf("%s has %d values, and %d are counted; %v", text, size(value), countValues([]byte(text)), err)
		}
	}
}

// TestASessionIsNamedOnce: a server that names two sessions gets no client.
func TestASessionIsNamedOnce(t *testing.T) {
	t.Parallel()
	u := newWorld().web(t, nil)
	a := u.ask("POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"name":"two sessions"}}`)
	if a.status != http.StatusBadGateway || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("two sessions: %d %v", a.status, a.header)
	}
}

// trickle is a client that takes every piece, slowly.
type trickle struct {
	*httptest.ResponseRecorder
	pieces int
}

func (t *trickle) Write(b []byte) (int, error) {
	t.pieces++
	time.Sleep(60 * time.Millisecond)
	return len(b), nil
}

// TestAWriteWaitsForNoTrickle: its client has a while for all pieces together.
// The client of a read has it for each.
func TestAWriteWaitsForNoTrickle(t *testing.T) {
	t.Parallel()
	for left, gone := range map[time.Duration]bool{100 * time.Millisecond: true, 0: false} {
		client := &trickle{ResponseRecorder: httptest.NewRecorder()}
		q := &request{left: left, w: &overhttp.Writer{
			ResponseWriter: client, Control: http.NewResponseController(client), Stall: testenv.Patience,
		}}
		for range 3 {
			q.put([]byte("x"))
		}
		if q.gone != gone || gone == (client.pieces == 3) {
			t.Errorf("with %s for all pieces, the client has gone: %v after %d", left, q.gone, client.pieces)
		}
	}
}

// FuzzStream: a stream of any bytes, cut anywhere, gives the same events, and
// the client reads in them what the proxy has read.
func FuzzStream(f *testing.F) {
	f.Add("id: 1\nretry: 5\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"x\"}\r\r", 7)
	f.Add("\ufeff:\n\ndata\ndata:a\n\nid:\x00\n\n", 1)
	read := func(r io.Reader) (all []event, last error) {
		for stream := newEvents(r); ; {
			e, err := stream.next()
			if err != nil {
				return all, err
			}
			all = append(all, e)
		}
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		whole, err := read(strings.NewReader(text))
		cut = min(max(cut, 0), len(text))
		pieces, errOfPieces := read(io.MultiReader(strings.NewReader(text[:cut]), iotest.OneByteReader(strings.NewReader(text[cut:]))))
		if !reflect.DeepEqual(whole, pieces) || !errors.Is(err, io.EOF) || !errors.Is(errOfPieces, io.EOF) {
			t.Fatalf("whole: %+v %v; in pieces: %+v %v", whole, err, pieces, errOfPieces)
		}
		for _, e := range whole {
			if e.id != "" && !isPlain(e.id, mostID) {
				t.Errorf("the id %q could not be sent back", e.id)
			}
			m, err := decode(e.data)
			if !e.isMessage() || err != nil {
				m = message{}
			}
			again, _ := read(bytes.NewReader(encodeEvent(e, m.body)))
			if len(again) != 1 || again[0].id != e.id && !e.comment || m.body != nil && string(again[0].data) != string(encode(m.body)) {
				t.Errorf("%+v becomes %+v", e, again)
			}
		}
	})
}
