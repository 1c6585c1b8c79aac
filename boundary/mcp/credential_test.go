package mcp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission/overhttp"
)

const secret = "s3cr3t-of-the-server"

// TestTheCredentialReachesTheServerAlone: the client does not see it, even if
// the server repeats it in any place. Nor do the operator's events.
func TestTheCredentialReachesTheServerAlone(t *testing.T) {
	t.Parallel()
	w := newWorld()
	stamp := w.term(t, "ann")
	var mu sync.Mutex
	var told []string
	tell := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, text)
	}
	credential, err := ParseHeader("Authorization: Bearer " + secret + "\r\n")
	if err != nil {
		t.Fatal(err)
	}
	u := w.web(t, func(o *ProxyOptions) {
		o.Credential, o.Reads = credential, []string{"read"}
		o.Observe = func(e gate.Event) {
			if e.Err != nil {
				tell(e.Err.Error())
			}
		}
		o.Dropped = func(err error) { tell(err.Error()) }
	})
	echo := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Values("Authorization"); len(got) != 1 || got[0] != "Bearer "+secret {
			t.Errorf("the server got %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(echo, "data:") || strings.HasPrefix(echo, "id:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.Header().Set("X-Secret", secret)
		_, _ = w.Write([]byte(echo))
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	to.Path = u.proxy.upstream.Path
	u.proxy.upstream = to
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"x":["Bearer ` + secret + `"],"` + secret + `":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"x":"s3cr3t\u002dof-the-server"}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"` + secret + `"}}`,
		`{"` + secret + `":1,"` + secret + `":2}`,
		"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"" + secret + "\"}}\n\n",
		"data: {\"" + secret + "\":1,\"" + secret + "\":1}\n\n",
		"id: " + secret + "\ndata:\n\n",
	} {
		echo = text
		a := u.ask("POST", toolText("1", "read", "{}"), "Authorization", "Bearer the client's own")
		if strings.Contains(a.text, secret) || a.header.Get("X-Secret") != "" {
			t.Errorf("the client got %s", a.text)
		}
	}
	echo = `{"` + secret + `":1,"` + secret + `":2}`
	if a := u.ask("POST", toolText("1", "write", "{}"), overhttp.Header, stamp.String()); strings.Contains(a.text, secret) {
		t.Errorf("the client got %s", a.text)
	}
	rec, err := w.client(t, "operator").Store().Get(t.Context(), "croft-proxy/mcp/tasks/a")
	if err != nil || strings.Contains(rec.Progress, secret) || !strings.Contains(rec.Progress, "closed") {
		t.Errorf("the record says %q: %v", rec.Progress, err)
	}
	u.proxy.upstream = &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: to.Path}
	u.ask("POST", toolText("1", "read", "{}"))
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(told, "\n"); strings.Contains(all, secret) || len(told) < 4 {
		t.Errorf("the operator was told %s", all)
	}
}

// TestAnAnswerThatIsNotHTTPTellsNoSecret: the error repeats what the server
// sent. Everybody who can read the store reads why a resource is closed.
func TestAnAnswerThatIsNotHTTPTellsNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld()
	u := w.web(t, func(o *ProxyOptions) { o.Credential = Credential{"Authorization", "Bearer " + secret} })
	want(t, "the write", u.tool(w.term(t, "ann"), "no HTTP", `{}`), "unknown")
	rec, err := w.client(t, "operator").Store().Get(t.Context(), "croft-proxy/mcp/tasks/a")
	if err != nil || strings.Contains(rec.Progress, secret) || !strings.Contains(rec.Progress, "[hidden by croft]") {
		t.Errorf("the record says %q: %v", rec.Progress, err)
	}
}

// TestASecretNumberIsHidden, also where the server writes it as one.
func TestASecretNumberIsHidden(t *testing.T) {
	t.Parallel()
	value, err := parse([]byte(`{"key":12345678,"other":1234567}`))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the answer", string(encode(Credential{"A", "12345678"}.hideIn(value))), `{"key":"[hidden by croft]","other":1234567}`)
}

// TestACredentialOfAProcessIsHidden: it is in the server's environment.
func TestACredentialOfAProcessIsHidden(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := w.agent(t, fence.Stamp{}, func(o *Options) { o.Credential = Credential{"API_KEY", secret} })
	a.upstream.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"API_KEY=` + secret + `"}}`)
	want(t, "the client got", string(encode(a.hear().body)),
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"API_KEY=[hidden by croft]"}}`)
}

// TestACredentialHasOneForm: a mistake is told without the secret.
func TestACredentialHasOneForm(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		secret, "", ":" + secret, "Authorization " + secret, "A: short", "A: " + secret + "\r\nB: " + secret, "A: " + secret + "\x00",
	} {
		if _, err := ParseHeader(text); !errors.Is(err, fence.ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{secret, "A-B=" + secret, "1A=" + secret, "A=short", "A=" + secret + "\nB=" + secret} {
		if _, err := ParseVariable(text); !errors.Is(err, fence.ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, name := range []string{"Host", "mcp-session-id", "Mcp-Param-X", "A B", "Content-Length"} {
		o := ProxyOptions{Options: Options{Credential: Credential{name, secret}}}
		if _, err := NewProxy(&url.URL{Scheme: "https", Host: "h"}, o); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "header") {
			t.Errorf("the header %s: %v", name, err)
		}
	}
}

// TestOnlySignedStampsCount: over both transports, where keys are given.
func TestOnlySignedStampsCount(t *testing.T) {
	t.Parallel()
	w := newWorld()
	key := signed.NewKey()
	plain := w.term(t, "ann")
	issued := key.Sign(plain)
	u := w.web(t, func(o *ProxyOptions) { o.Keys = key.Public() })
	for answer, stamp := range map[string]fence.Stamp{"invalid": plain, "written": issued} {
		want(t, "over HTTP", u.tool(stamp, "write_file", "{}"), answer)
		a := w.agent(t, stamp, func(o *Options) { o.Keys = key.Public() })
		want(t, "over stdio", a.tool("write_file", "{}"), answer)
	}
}

// TestATrialRefusesNothing: every request passes as it comes, and those that
// would be refused are told and noted. No lease is taken.
func TestATrialRefusesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	ann := w.term(t, "ann")
	bob := w.term(t, "bob")
	var mu sync.Mutex
	var observed []string
	trial := func(o *Options) {
		o.RefuseNothing, o.Current = true, w.follower(t)
		o.Observe = func(e gate.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == gate.Observed {
				observed = append(observed, e.Method+" "+e.Code)
			}
		}
	}
	u := w.web(t, func(o *ProxyOptions) { trial(&o.Options) })
	a := w.agent(t, ann, trial)
	none := w.agent(t, fence.Stamp{}, trial)
	want(t, "a replaced owner over HTTP", u.tool(ann, "write_file", "{}"), "written")
	want(t, "the owner", u.tool(bob, "write_file", "{}"), "written")
	want(t, "nobody", u.tool(fence.Stamp{}, "write_file", "{}"), "written")
	want(t, "a replaced owner over stdio", a.tool("write_file", "{}"), "written")
	want(t, "nobody over stdio", none.tool("write_file", "{}"), "written")
	u.ask("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/do"}`)
	a.ask("tools/do", "{}")
	mu.Lock()
	want(t, "would have been refused", strings.Join(observed, ", "), "write_file not_owned, write_file invalid, "+
		"write_file not_owned, write_file invalid, tools/do invalid, tools/do invalid")
	mu.Unlock()
	if seen := u.sees(); strings.Count(seen, "write_file") != 3 || !strings.Contains(seen, "tools/do") || strings.Contains(seen, "croft-") {
		t.Errorf("the server saw %s", seen)
	}
	if rec, err := w.client(t, "x").Store().Get(context.Background(), "croft-proxy/mcp/tasks/a"); err != nil || !rec.IsZero() {
		t.Errorf("a trial took the lease: %v %v", rec, err)
	}
}
