package httpfence

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/postgres"
	_ "github.com/croft-dev/croft/backend/redis"
	"github.com/croft-dev/croft/internal/testenv"
)

// TestMarksAndLeasesInEveryBackend: a proxy knows what an earlier one has
// admitted, in every backend and under any resource name.
func TestMarksAndLeasesInEveryBackend(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(t *testing.T) (store, marks string){
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
			storeURL, template := place(t)
			marks, err := MarksAt(template)
			if err != nil {
				t.Fatal(err)
			}
			var seen journal
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.URL.EscapedPath()) })
			proxy := func(owner string) (*Proxy, string) {
				client, err := croft.Open(t.Context(), storeURL, &croft.Options{Owner: owner, CallTimeout: testenv.Patience})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close() })
				p, front := newWorld().proxy(t, owner, handler, func(o *ProxyOptions) { o.Client, o.Marks = client, marks })
				return p, front.URL
			}
			one, first := proxy("one")
			const odd = "/r/a%20b%25%23%3F%E2%82%AC"
			for _, path := range []string{"/r/1", odd} {
				send(t, "PUT", first+path, older, "").want(t, path, 200, "")
				send(t, "PUT", first+path, numbered(newer, 1), "").want(t, path, 200, "")
			}
			if err := one.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			_, second := proxy("two")
			for _, path := range []string{"/r/1", odd} {
				send(t, "PUT", second+path, older, "").want(t, "the older owner "+path, 409, "stale")
				send(t, "PUT", second+path, numbered(newer, 1), "").want(t, "a copy "+path, 409, "repeated")
				send(t, "PUT", second+path, numbered(newer, 2), "").want(t, "the newer owner "+path, 200, "")
			}
			send(t, "PUT", second+"/r/2", older, "").want(t, "another resource", 200, "")
			if want := "/r/1 /r/1 " + odd + " " + odd + " /r/1 " + odd + " /r/2"; seen.String() != want {
				t.Errorf("the service saw %s, want %s", seen.String(), want)
			}
		})
	}
}
