package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// croftMain runs a command line in this process.
func croftMain(t *testing.T, stdin string, args ...string) (stdout string) {
	t.Helper()
	var out, err strings.Builder
	if code := Main(args, strings.NewReader(stdin), &out, &err); code != 0 {
		t.Fatalf("croft %s: exit code %d: %s", strings.Join(args, " "), code, err.String())
	}
	return strings.TrimSpace(out.String())
}

func TestWebhooksAreSignedAndNamedTheSameInEveryAttempt(t *testing.T) {
	secret := "a secret of the hook that is long enough"
	var mu sync.Mutex
	var keys []string
	var problems []error
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.Header.Get(steward.HeaderKey))
		problems = append(problems, err, steward.Verify([]byte(secret), "http://"+r.Host+"/", r.Header, body, time.Now(), time.Hour))
		if string(body) != `{"a":1}` || r.Header.Get("X-Team") != "shop" {
			problems = append(problems, errors.New("body or header is not what was asked for"))
		}
		if len(keys) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	store := "sqlite://" + filepath.ToSlash(filepath.Join(dir, "ledger.db"))
	write("hook.secret", secret+"\n")
	destinations := write("destinations.json", `{"hook": {"url": "`+server.URL+`", "secret_file": "hook.secret", "header": {"X-Team": "shop"}}}`)
	effects := write("effects.jsonl", `{"name": "published", "to": "hook", "body": {"a":1}}`)

	id := croftMain(t, "", "work", "add", "q", "x", "--store", store)
	lease := write("lease", croftMain(t, "", "work", "claim", "q", "--store", store))
	croftMain(t, "", "work", "complete", "@"+lease, "--effects", effects, "--store", store)
	for end := time.Now().Add(time.Minute); ; { // the second attempt is due after a backoff
		croftMain(t, "", "work", "dispatch", "--destinations", destinations, "--until-empty", "--store", store)
		if strings.Contains(croftMain(t, "", "work", "effects", "ls", "--json", "--store", store), `"state":"sent"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it was not delivered within a minute")
		}
		time.Sleep(50 * time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	if err := errors.Join(problems...); err != nil {
		t.Error(err)
	}
	if want := id + ":0:published"; len(keys) != 2 || keys[0] != want || keys[1] != want {
		t.Errorf("the keys were %q, want %s twice", keys, want)
	}
}

func TestTheLineOfADrainSaysHowFarItHasCome(t *testing.T) {
	for _, c := range []struct {
		finished, left, running int64
		failed                  int
		want                    string
	}{
		{0, 10, 2, 0, "[------------------------]   0%  0 of 10  2 running"},
		{5, 5, 1, 3, "[############------------]  50%  5 of 10  1 running  3 failed attempts  0.5/s  10s left"},
		{10, 0, 0, 0, "[########################] 100%  10 of 10  0 running  1.0/s"},
		{-3, 0, 0, 0, "[------------------------]   0%  0 of 1  0 running"},
	} {
		if got := drainLine(c.finished, c.left, c.running, c.failed, 10*time.Second); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestTheEndOfWhatACommandSaysIsKept(t *testing.T) {
	c := &collector{most: 4 * work.MaxError, tail: true}
	for i := range 5000 {
		_, _ = io.WriteString(c, strings.Repeat("x", i%50)+"\n")
	}
	_, _ = io.WriteString(c, "last \xff words\n")
	text := c.lastLines()
	if !strings.HasSuffix(text, "\nlast ? words") || strings.Count(text, "\n") != 19 || len(text) > work.MaxError {
		t.Errorf("kept %q", text)
	}
	c = &collector{most: 10}
	_, _ = io.WriteString(c, "0123456789")
	if c.over {
		t.Error("10 of 10 bytes are too many")
	}
	_, _ = io.WriteString(c, "x")
	if !c.over || string(c.data) != "0123456789" {
		t.Errorf("kept %q, over %v", c.data, c.over)
	}
}
