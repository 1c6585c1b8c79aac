package gcs

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/auth"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// thief is a host that should get nothing. It counts what it gets.
func thief(tb testing.TB) (address string, got *atomic.Int64) {
	tb.Helper()
	got = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got.Add(1) }))
	tb.Cleanup(s.Close)
	return s.URL, got
}

func hunter2() *auth.Credentials {
	return auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: token("hunter2")})
}

// TestCredentialsFollowNoRedirect: they are added to every request, also to one
// that the endpoint has sent elsewhere.
func TestCredentialsFollowNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere, stolen := thief(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked atomic.Int64
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, elsewhere+r.URL.Path, status)
		}))
		_, err := Open(t.Context(), "bucket", "croft", &Options{Connection: Connection{Endpoint: front.URL, Credentials: hunter2()}})
		if err == nil || !strings.Contains(err.Error(), "credentials do not follow") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("status %d: %v, want what to do", status, err)
		}
		if asked.Load() == 0 || stolen.Load() != 0 {
			t.Errorf("status %d: %d requests, of which %d followed", status, asked.Load(), stolen.Load())
		}
		front.Close()
	}
}

// TestALongUploadGoesOnNowhereElse: the service says where, and the id of the
// upload, which is all that anybody needs to go on with it.
func TestALongUploadGoesOnNowhereElse(t *testing.T) {
	t.Parallel()
	elsewhere, stolen := thief(t)
	server := testenv.GCSExact(t)
	target, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var moved atomic.Int64
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(resp *http.Response) error {
			if resp.Header.Get("Location") != "" {
				moved.Add(1)
				resp.Header.Set("Location", elsewhere+"/upload?upload_id=hunter3")
			}
			return nil
		},
	})
	t.Cleanup(front.Close)
	g := openGuard(t, server.Bucket(t), "out.bin", GuardOptions{
		Connection: Connection{Endpoint: front.URL, Credentials: hunter2()}, InMemory: 1 << 10, chunk: 256 << 10, SkipProbe: true,
	})
	_, err = g.Write(t.Context(), stamp(10, 1, 0), bytes.NewReader(make([]byte, 1<<20)))
	if !errors.Is(err, errStranger) || strings.Contains(err.Error(), "hunter") {
		t.Errorf("the write: %v, want that it goes to no stranger", err)
	}
	if moved.Load() == 0 || stolen.Load() != 0 {
		t.Errorf("%d uploads were sent elsewhere, and %d requests came there", moved.Load(), stolen.Load())
	}
}

// TestPlantedRecordsDecideNothing: whatever lies under the name of a record, a
// claim is not granted over it, a listing shows the others, and it stays as it is.
func TestPlantedRecordsDecideNothing(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	st, ctx := open(t, server.Bucket(t), &Options{Connection: at(server.Endpoint)}), t.Context()
	defer st.Close()
	good := acquire("planted/good", "ann")
	held := one(ctx, st, good)
	if held.Err != nil {
		t.Fatal(held.Err)
	}
	body := func(key string, change func(*tenure.Record)) []byte {
		t.Helper()
		rec := held.Record
		rec.Key, rec.History = key, append([]tenure.Term(nil), rec.History...)
		change(&rec)
		data, _, err := objects.Write(rec)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	dropped, _, err := objects.WriteDropped(good.Key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token := func(to fence.Token) func(*tenure.Record) {
		return func(rec *tenure.Record) { rec.Token, rec.History[len(rec.History)-1].Token = to, to }
	}
	many := func(rec *tenure.Record) { rec.Guards = make([]string, 1000) }
	long := func(rec *tenure.Record) { rec.Owner = strings.Repeat("x", 100_000) }
	for what, make := range map[string]func(key string) []byte{
		"nothing":            func(string) []byte { return nil },
		"more than a record": func(string) []byte { return bytes.Repeat([]byte("x"), 2<<20) },
		"deep":               func(string) []byte { return bytes.Repeat([]byte(`{"record":`), 20_000) },
		"a time without end": func(string) []byte {
			return []byte(`{"croft":1,"nonce":"x","dropped":{"at":"` + strings.Repeat("9", 100_000) + `"}}`)
		},
		"another's record":      func(string) []byte { return body(good.Key, token(held.Record.Token+1)) },
		"another's deletion":    func(string) []byte { return dropped },
		"a token beyond all":    func(key string) []byte { return body(key, token(fence.MaxToken+1)) },
		"a token below all":     func(key string) []byte { return body(key, token(-1)) },
		"an owner without end":  func(key string) []byte { return body(key, long) },
		"guards without number": func(key string) []byte { return body(key, many) },
	} {
		key := "planted/" + what
		name := st.reg.layout.Record(key)
		data := make(key)
		if _, err := st.reg.put(ctx, name, 0, data, ""); err != nil {
			t.Fatal(err)
		}
		if a := one(ctx, st, acquire(key, "bob")); !errors.Is(a.Err, cas.ErrDamaged) || len(a.Err.Error()) > 4096 {
			t.Errorf("%s: a claim: %.300v, want damaged", what, a.Err)
		}
		now, err := st.reg.get(ctx, name)
		if err != nil || !bytes.HasPrefix(data, now.data) || len(now.data) < min(len(data), objects.MaxBody) {
			t.Errorf("%s: it was changed, %v", what, err)
		}
	}
	for _, name := range []string{"readme.txt", "x.json", "a/../b.json", "\x1b[2J.json", strings.ToUpper(strings.Repeat("ab", 32)) + ".json"} {
		if _, err := st.reg.put(ctx, st.reg.layout.Records()+name, 0, body("planted/ghost", func(*tenure.Record) {}), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"", "planted/"} {
		var keys []string
		var failed error
		for rec, err := range st.List(ctx, prefix) {
			if failed = err; err == nil {
				keys = append(keys, fmt.Sprint(rec.Key, " ", rec.Token))
			}
		}
		if want := fmt.Sprint(good.Key, " ", held.Record.Token); len(keys) != 1 || keys[0] != want || !errors.Is(failed, cas.ErrDamaged) {
			t.Errorf("under %q: listed %q, then %.200v; want %q and damage", prefix, keys, failed, want)
		}
	}
}
