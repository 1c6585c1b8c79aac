package page

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/tenure"
)

var rowOfGuard = regexp.MustCompile(`(?s)<td data-label="Resource"><bdi>([^<]*)</bdi></td>\s*<td data-label="Fence"><span class="badge [^"]*">([^<]*)</span>(.*?)</tr>`)

// guardRows returns the states of the guards on a page, and the rest of each
// row.
func guardRows(body string) (states, rest map[string]string) {
	states, rest = map[string]string{}, map[string]string{}
	for _, m := range rowOfGuard.FindAllStringSubmatch(body, -1) {
		states[m[1]], rest[m[1]] = m[2], m[3]
	}
	return states, rest
}

// TestThePageShowsTheMarksOfGuards: those of the server's files, and those in
// places that its operator allows. It opens no others, whatever a holder names.
func TestThePageShowsTheMarksOfGuards(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files are guarded on Unix alone")
	}
	served, allowed, secret := t.TempDir(), t.TempDir(), t.TempDir()
	places, err := guard.Allow(allowed)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigWith(t, &server.Options{
		Access: guardRules{}, Files: func(_ context.Context, path string) (guard.Artifact, error) {
			return file.Open(filepath.Join(served, path), nil)
		},
	}, Options{Guards: places})
	old := r.apply(tenure.Request{Verb: tenure.Acquire, Key: "jobs/a", Owner: "olga", TTL: time.Minute})
	r.clock.Advance(2 * time.Minute)
	at := func(path string) string { return r.front.URL + "/files/" + path }
	elsewhere := "http://127.0.0.1:1/files/up"
	now := r.apply(tenure.Request{Verb: tenure.Acquire, Key: "jobs/a", Owner: "nina", TTL: time.Hour, Guards: []string{
		at("up"), at("behind"), at("ahead"), at("bare"), at("hidden"), at("../up"), at("up.fence"), elsewhere,
		filepath.Join(allowed, "other"), filepath.Join(allowed, "none", "x"), filepath.Join(secret, "up"),
		allowed + "/../" + filepath.Base(secret) + "/up", "https://croft.example/files/up",
	}})
	write := func(path string, s fence.Stamp) {
		t.Helper()
		g, err := file.Open(path, nil)
		if err == nil {
			_, err = g.Write(t.Context(), s, strings.NewReader("x"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other, ahead := now.Stamp(), now.Stamp()
	other.Key, ahead.Token = "jobs/of-somebody-else", ahead.Token+1
	write(filepath.Join(served, "up"), now.Stamp())
	write(filepath.Join(served, "hidden"), now.Stamp())
	write(filepath.Join(secret, "up"), now.Stamp())
	write(filepath.Join(served, "behind"), old.Stamp())
	write(filepath.Join(served, "ahead"), ahead)
	write(filepath.Join(allowed, "other"), other)
	for range 2 {
		r.apply(tenure.Request{Verb: tenure.Revoke, Key: "croft.refused/jobs", Actor: "olga", Note: fmt.Sprintf(
			`{"act":"write","code":"stale","key":"jobs/a","token":%d,"target":%q}`, old.Token, at("up"))})
	}
	resp, body := r.signIn("ann").get("key?key=jobs%2Fa")
	has(t, "the key", resp, body, http.StatusOK)
	states, rest := guardRows(body)
	for target, want := range map[string]string{
		at("up"): "up", at("behind"): "behind", at("ahead"): "ahead", at("bare"): "no mark",
		at("hidden"): "not shown", at("../up"): "not shown", at("up.fence"): "not shown", elsewhere: "not shown",
		filepath.Join(allowed, "other"): "other key", filepath.Join(allowed, "none", "x"): "unknown",
		filepath.Join(secret, "up"): "not shown", allowed + "/../" + filepath.Base(secret) + "/up": "not shown",
		"https://croft.example/files/up": "not shown",
	} {
		if states[target] != want {
			t.Errorf("%s is %q, want %q", target, states[target], want)
		}
		if want == "not shown" && strings.Contains(rest[target], "<code>1") {
			t.Errorf("%s shows a mark: %s", target, rest[target])
		}
	}
	for target, words := range map[string][]string{
		at("up"):     {fmt.Sprint(now.Token), "nina", "1 admitted", `<b class="bad">2</b>`},
		at("behind"): {fmt.Sprint(old.Token), "olga", "1 admitted"},
		at("ahead"):  {fmt.Sprint(ahead.Token), "restored?"},
	} {
		for _, word := range words {
			if !strings.Contains(rest[target], word) {
				t.Errorf("%s: the row has no %q: %s", target, word, rest[target])
			}
		}
	}
	if strings.Contains(body, "of-somebody-else") {
		t.Error("the page names a key that the visitor may not read")
	}
}

// guardRules lets everybody read jobs/a, and all files but the hidden one.
type guardRules struct{}

func (guardRules) Identify(r *http.Request) (server.Identity, error) { return rules{}.Identify(r) }

func (guardRules) May(_ server.Identity, verb server.Verb, key string) bool {
	return verb == server.Read && (key == "jobs/a" || strings.HasPrefix(key, "files/") && key != "files/hidden")
}
