package httpfence

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestHoweverARequestIsWrittenItMeansOneThing: the service gets the method, the
// path and the end of a request as the gate has read them, or it gets nothing.
func TestHoweverARequestIsWrittenItMeansOneThing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	_, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen.add("%s:%s:%s", r.Method, r.RequestURI, body)
	}), nil)
	address := strings.TrimPrefix(front.URL, "http://")
	stamp := Header + ": " + newer.String() + "\r\n"
	for i, c := range []struct {
		name, request string
		status        int // of the first answer; 0 means any refusal
		seen          string
	}{
		{"two lengths", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, ""},
		{"a request inside a body", "GET /r/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 37\r\n\r\nDELETE /r/1 HTTP/1.1\r\nHost: inside\r\n\r\n", 400, ""},
		{"length and chunks", "POST /r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nab\r\n0\r\n\r\n", 200, "POST:/r/1:ab"},
		{"an unknown encoding", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, ""},
		{"a blank before the colon", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, ""},
		{"an absolute URL", "PUT http://127.0.0.1/r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "Content-Length: 1\r\n\r\na", 200, "PUT:/r/1:a"},
		{"an absolute URL elsewhere", "PUT http://elsewhere/r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "\r\n", 421, ""},
		{"an absolute URL with tricks", "PUT http://127.0.0.1/x/../r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "\r\n", 400, ""},
		{"an opaque URL", "PUT r:r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "\r\n", 400, ""},
		{"an asterisk", "PUT * HTTP/1.1\r\nHost: localhost\r\n" + stamp + "\r\n", 400, ""},
		{"small letters are no read", "get /r/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 428, ""},
		{"CONNECT", "CONNECT r:1 HTTP/1.1\r\nHost: r:1\r\n" + stamp + "\r\n", 501, ""},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, ""},
		{"a stamp that is hop-by-hop", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\nConnection: Croft-Stamp\r\n" + stamp + "Content-Length: 1\r\n\r\na", 200, "PUT:/r/1:a"},
		{"a stamp in the trailer", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\nTrailer: Croft-Stamp\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + stamp + "\r\n", 428, ""},
		{"two stamps", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + stamp + "\r\n", 400, ""},
		{"an empty stamp", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\nCroft-Stamp:\r\n\r\n", 400, ""},
		{"a body that is asked for", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n" + stamp + "Content-Length: 1\r\n\r\na", 100, "PUT:/r/1:a"},
		{"a long header", "PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n" + stamp + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", 431, ""},
	} {
		seen.forget()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprint(conn, c.request) // the proxy may refuse it before its end
		answers := bufio.NewReader(conn)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%d %s: %v", i, c.name, err)
		}
		if resp.StatusCode != c.status && (c.status != 0 || resp.StatusCode < 400) {
			t.Errorf("%s: answered %d, want %d", c.name, resp.StatusCode, c.status)
		}
		if resp.StatusCode == http.StatusContinue {
			if resp, err = http.ReadResponse(answers, nil); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		_ = conn.Close()
		if got := strings.TrimRight(seen.String(), "\r\n"); got != strings.TrimRight(c.seen, "\r\n") {
			t.Errorf("%s: the service saw %q, want %q", c.name, got, c.seen)
		}
	}
}
