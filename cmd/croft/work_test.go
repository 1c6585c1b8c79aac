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
