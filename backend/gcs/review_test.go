package gcs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/auth"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAnAnswerThatBreaksOffIsNotAnAbsence: the body of a read breaks off, and when the client library goes on where it did, that generation has been replaced. The holder is not told that it holds nothing.
func TestAnAnswerThatBreaksOffIsNotAnAbsence(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	near, st := open(t, name, &Options{Connection: at(server.Endpoint)}), open(t, name, &Options{Connection: at(way.URL)})
	defer near.Close()
	defer st.Close()
	mine := acquire("broken/body", "ann")
	if a := one(t.Context(), near, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	broken := func() func(*http.Request) *fault {
		var reads atomic.Int64
		return func(r *http.Request) *fault {
			switch {
			case isWrite(r):
				return nil
			case reads.Add(1) == 1:
				return &fault{half: true}
			case r.URL.Query().Get("generation") != "":
				return &fault{status: http.StatusNotFound, body: `{"error": {"message": "No such object"}}`}
			}
			return nil
		}
	}
	way.on(broken())
	if rec, err := st.Get(t.Context(), mine.Key); err != nil || rec.Grant != mine.Secret.Grant() {
		t.Errorf("shown as %+v, %v", rec, err)
	}
	way.on(broken())
	if a := one(t.Context(), st, then(tenure.Renew, mine)); a.Err != nil {
		t.Errorf("a renewal: %v", a.Err)
	}
}

// TestOnlyTheServiceTellsTheTime: what a proxy answers in its place, or has kept, is dated by another clock.
func TestOnlyTheServiceTellsTheTime(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st := open(t, name, &Options{Connection: at(way.URL), patience: time.Millisecond})
	defer st.Close()
	mine := acquire("time/holder", "ann")
	if a := one(t.Context(), st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, status := range []int{http.StatusBadGateway, http.StatusForbidden, http.StatusTooManyRequests} {
		for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
			way.on(func(*http.Request) *fault { return &fault{status: status, date: time.Now().Add(wrong)} })
			if a := one(t.Context(), st, acquire("time/other", "bob")); !errors.Is(a.Err, store.ErrUnknown) {
				t.Fatal(a.Err)
			}
			way.on(nil)
			// It goes by what it remembers of its own last write, and of the time.
			if a := one(t.Context(), st, then(tenure.Renew, mine)); a.Err != nil || a.Now.Sub(time.Now()).Abs() > time.Minute {
				t.Errorf("status %d dated %s off: renewed at %s, %v", status, wrong, a.Now, a.Err)
			}
		}
	}
	kept := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Age": {"3600"}}}
	if authentic(kept) {
		t.Error("an answer from a cache tells the time")
	}
}

// TestAWriteToWhatWasDeletedIsDecidedAgain: an object that is gone is a condition that does not hold, whatever the status says, and no bucket that is not there.
func TestAWriteToWhatWasDeletedIsDecidedAgain(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st := open(t, name, &Options{Connection: at(way.URL)})
	defer st.Close()
	old, next := acquire("deleted/lease", "ann"), acquire("deleted/lease", "bob")
	for _, req := range []tenure.Request{old, then(tenure.Release, old)} {
		if a := one(t.Context(), st, req); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	gone := func(object string) *fault {
		return &fault{status: http.StatusNotFound, body: `{"error": {"message": "No such object"}}`, before: func() {
			if err := st.reg.handle.Object(object).Delete(t.Context()); err != nil {
				t.Error(err)
			}
		}}
	}
	way.on(nth(1, func(r *http.Request) bool { return r.Method == http.MethodPost }, gone(st.reg.layout.Record(old.Key))))
	if a := one(t.Context(), st, next); a.Err != nil {
		t.Errorf("a claim: %v", a.Err)
	}
	way.on(nil)
	g := openGuard(t, name, "out.json", GuardOptions{Connection: at(way.URL), SkipProbe: true})
	if _, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("first")); err != nil {
		t.Fatal(err)
	}
	way.on(nth(1, func(r *http.Request) bool { return r.Method == http.MethodPost }, gone("out.json")))
	if _, err := g.Write(t.Context(), stamp(11, 2, 0), strings.NewReader("second")); err != nil {
		t.Errorf("a guarded write: %v", err)
	}
}

// TestALongUploadOutlivesAFailedRequest: its source cannot be read again.
func TestALongUploadOutlivesAFailedRequest(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	g := openGuard(t, name, "long.bin", GuardOptions{Connection: at(way.URL), SkipProbe: true, InMemory: 1 << 10})
	long := bytes.Repeat([]byte("0123456789abcdef"), (chunk+1<<16)/16)
	uploads := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/upload/") }
	for n := range int64(3) { // the beginning, and two chunks
		way.on(nth(n+1, uploads, &fault{status: http.StatusServiceUnavailable}))
		if _, err := g.Write(t.Context(), stamp(10, 1, uint64(n+1)), struct{ io.Reader }{bytes.NewReader(long)}); err != nil {
			t.Errorf("request %d fails: %v", n+1, err)
		}
	}
	way.on(nil)
	if content, _, err := g.content(t.Context()); err != nil || !bytes.Equal(content, long) {
		t.Errorf("%d bytes of %d, %v", len(content), len(long), err)
	}
}

// TestPlainContentIsNotSaidToBePacked because what was there before was; what is packed again stays so.
func TestPlainContentIsNotSaidToBePacked(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, "content")
	_ = z.Close()
	for _, inMemory := range []int{100, 4} {
		g := openGuard(t, server.Bucket(t), "page.html", GuardOptions{Connection: at(server.Endpoint), InMemory: inMemory})
		w := g.bucket.handle.Object("page.html").NewWriter(t.Context())
		w.ContentEncoding = "gzip"
		if _, err := w.Write(packed.Bytes()); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ content, want string }{{packed.String(), "gzip"}, {"plain content", ""}} {
			if _, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader(c.content)); err != nil {
				t.Fatal(err)
			}
			if attrs, err := g.bucket.handle.Object("page.html").Attrs(t.Context()); err != nil || attrs.ContentEncoding != c.want {
				t.Errorf("in memory %d: %q is said to be %q, %v", inMemory, c.content, attrs.ContentEncoding, err)
			}
		}
	}
}

// TestATargetLeadsToTheSameObject also when the way to it was not given as a URL.
func TestATargetLeadsToTheSameObject(t *testing.T) {
	t.Parallel()
	c := Connection{Endpoint: "http://127.0.0.1:1", Project: "billed"}
	g := openGuard(t, "bucket", "a?b#c%d", GuardOptions{Connection: c, SkipProbe: true})
	if want := "gs://bucket/a%3Fb%23c%25d?endpoint=http%3A%2F%2F127.0.0.1%3A1&project=billed"; g.Target() != want {
		t.Errorf("the target is %s, want %s", g.Target(), want)
	}
	if _, err := OpenGuard(t.Context(), "bucket", "out.json.croft/1.croft-upload", &GuardOptions{Connection: c}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a name that sweeps remove: %v", err)
	}
}

type noToken struct{}

func (noToken) Token(context.Context) (*auth.Token, error) {
	return nil, &auth.Error{Response: &http.Response{StatusCode: http.StatusBadRequest}, Body: []byte(`{"error": "invalid_grant"}`)}
}

// TestCredentialsThatGiveNoToken are not taken for a network that is down.
func TestCredentialsThatGiveNoToken(t *testing.T) {
	t.Parallel()
	creds := auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: noToken{}})
	_, err := Open(t.Context(), "bucket", "croft", &Options{Connection: Connection{Endpoint: "http://127.0.0.1:1", Credentials: creds}})
	if err == nil || !strings.Contains(err.Error(), "invalid_grant") || !strings.Contains(err.Error(), "renew them") || strings.Contains(err.Error(), "network") {
		t.Errorf("Open: %v", err)
	}
}

type elsewhere struct{ hosts chan string }

func (e elsewhere) RoundTrip(req *http.Request) (*http.Response, error) {
	e.hosts <- req.URL.Scheme + "://" + req.URL.Host
	return nil, context.Canceled
}

// TestTheEndpointAskedForIsWhereRequestsGo, Google's own too, whatever the environment says.
func TestTheEndpointAskedForIsWhereRequestsGo(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	for _, endpoint := range []string{google, "https://private.example"} {
		way := elsewhere{make(chan string, 10)}
		creds := auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: token("hunter2")})
		b, err := dial(t.Context(), "bucket", &Connection{Endpoint: endpoint, Credentials: creds, Transport: way})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.getOnce(t.Context(), "x")
		_, _ = b.putOnce(t.Context(), "x", 0, nonce(), "")
		for _, what := range []string{"read", "write"} {
			if host := <-way.hosts; host != endpoint {
				t.Errorf("a %s for %s goes to %s", what, endpoint, host)
			}
		}
	}
}
