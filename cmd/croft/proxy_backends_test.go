package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestProxyMarksAndLeasesInEveryBackend: a proxy knows what an earlier one has
// admitted, in every backend and under any resource name.
//
// It is here and not in boundary/httpfence because that package's module
// requires no client library.
func TestProxyMarksAndLeasesInEveryBackend(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (store, marks string){
		"dir": func(t *testing.T) (string, string) {
			dir := t.TempDir()
			return filepath.Join(dir, "store"), filepath.Join(dir, "{resource}")
		},
		"redis": func(t *testing.T) (string, string) {
			url := testenv.RedisAlone(t).URL()
			return url, url + "#proxy:{resource}"
		},
		"postgres": func(t *testing.T) (string, string) {
			url := testenv.Postgres(t).Database(t)
			return url, url + "#proxy/{resource}"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storeURL, marks := open(t)
			var seen paths
			service := httptest.NewServer(&seen)
			t.Cleanup(service.Close)
			older := fence.Stamp{Key: "jobs/a", Token: 41, Grant: "0123456789abcdef0123456789abcdef"}
			newer := fence.Stamp{Key: "jobs/a", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
			copied, again := newer, newer
			copied.Seq, again.Seq = 1, 2

			one, first := frontProxy(t, "one", service.URL, storeURL, marks)
			const odd = "/r/a%20b%25%23%3F%E2%82%AC"
			for _, path := range []string{"/r/1", odd} {
				wantPut(t, "the older owner first", first+path, older, http.StatusOK, "")
				wantPut(t, "the newer owner first", first+path, copied, http.StatusOK, "")
			}
			if err := one.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			_, second := frontProxy(t, "two", service.URL, storeURL, marks)
			for _, path := range []string{"/r/1", odd} {
				wantPut(t, "the older owner", second+path, older, http.StatusConflict, "stale")
				wantPut(t, "a copy", second+path, copied, http.StatusConflict, "repeated")
				wantPut(t, "the newer owner", second+path, again, http.StatusOK, "")
			}
			wantPut(t, "another resource", second+"/r/2", older, http.StatusOK, "")
			if want := "/r/1 /r/1 " + odd + " " + odd + " /r/1 " + odd + " /r/2"; seen.String() != want {
				t.Errorf("the service saw %s, want %s", seen.String(), want)
			}
		})
	}
}

// frontProxy makes a proxy in front of a service, and closes it with the test.
func frontProxy(t *testing.T, owner, upstream, storeURL, marks string) (p *httpfence.Proxy, front string) {
	t.Helper()
	client, err := croft.Open(t.Context(), storeURL, &croft.Options{Owner: owner, CallTimeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	at, err := httpfence.MarksAt(marks)
	if err != nil {
		t.Fatal(err)
	}
	rule, err := httpfence.ParseRule("/r/{id}")
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	p, err = httpfence.NewProxy(target, httpfence.ProxyOptions{
		Options: httpfence.Options{
			Rules: []httpfence.Rule{rule}, Marks: at, Client: client,
			TTL: time.Minute, Settle: testenv.Patience, Wait: testenv.Patience,
		},
		ConnectWithin: testenv.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p, server.URL
}

// wantPut writes under a stamp. It checks the status of the answer and the code
// of the refusal; the code "" means that there must be none.
func wantPut(t *testing.T, what, target string, stamp fence.Stamp, status int, code string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	httpfence.SetStamp(req.Header, stamp)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem *httpfence.ProblemError
	got := ""
	if errors.As(httpfence.RefusalIn(resp), &problem) {
		got = problem.Code
	}
	if resp.StatusCode != status || got != code {
		t.Errorf("%s, %s: %d %q; want %d %q", what, target, resp.StatusCode, got, status, code)
	}
}

// paths is a service that records the paths of its requests, in order.
type paths struct {
	mu   sync.Mutex
	seen []string
}

func (p *paths) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r.URL.EscapedPath())
}

func (p *paths) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.seen, " ")
}
