package gcs

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/auth"
	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/internal/test/objectstest"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store/storetest"
)

func hunter2() *auth.Credentials {
	return auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: token("hunter2")})
}

// TestCredentialsFollowNoRedirect: the client adds them to every request, so it
// must not follow the endpoint to another host.
func TestCredentialsFollowNoRedirect(t *testing.T) {
	t.Parallel()
	objectstest.Redirects(t, func(status int, endpoint string) {
		_, err := Open(t.Context(), "bucket", "croft", &Options{Connection: Connection{Endpoint: endpoint, Credentials: hunter2()}})
		if err == nil || !strings.Contains(err.Error(), "credentials do not follow") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("status %d: %v, want what to do", status, err)
		}
	})
}

// TestALongUploadGoesOnNowhereElse: the service says where to continue, and
// gives the id of the upload. Anybody can continue an upload with its id.
func TestALongUploadGoesOnNowhereElse(t *testing.T) {
	t.Parallel()
	elsewhere, stolen := objectstest.Thief(t)
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

// TestPlantedRecordsDecideNothing: whatever object lies under the name of a
// record.
func TestPlantedRecordsDecideNothing(t *testing.T) {
	t.Parallel()
	server, clock := testenv.GCS(t), storetest.NewClock()
	st := open(t, server.Bucket(t), &Options{Connection: at(server.Endpoint), clock: clock.Now})
	defer st.Close()
	objectstest.Planted(t, objectstest.Harness{
		Store: st, Layout: st.reg.layout, Advance: clock.Advance,
		Put: func(tb testing.TB, o objectstest.Object) {
			planted := &storage.Object{Name: o.Name, ContentType: "text/html", ContentEncoding: o.Encoding}
			if _, err := st.reg.insert(tb.Context(), planted, o.Data, nil); err != nil {
				tb.Fatal(err)
			}
		},
		Get:     func(tb testing.TB, name string) []byte { return stored(tb, server, st.reg.name, name) },
		Strange: []string{"a/../b.json", "\x1b[2J.json"},
	})
}

// TestMetadataHideNoRecord: a neighbour that may change metadata gives a record
// the key of another. Listings by prefix look at that key.
func TestMetadataHideNoRecord(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	st, ctx := open(t, server.Bucket(t), &Options{Connection: at(server.Endpoint)}), t.Context()
	defer st.Close()
	mine := acquire("reports/daily", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, text := range []string{"", "other/key", "%", "reports/weekly"} {
		if _, err := st.reg.patch(ctx, st.reg.layout.Record(mine.Key), map[string]string{metaKey: text}, nil); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for rec, err := range st.List(ctx, "reports/") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, rec.Key)
		}
		if len(keys) != 1 || keys[0] != mine.Key {
			t.Errorf("with %q in its metadata: listed %q, want %s", text, keys, mine.Key)
		}
	}
}

// stored reads an object as it is stored, without unpacking. It returns nil if
// there is none.
func stored(tb testing.TB, server *testenv.GCSServer, bucket, name string) []byte {
	tb.Helper()
	address := server.Endpoint + "/storage/v1/b/" + bucket + "/o/" + url.PathEscape(name) + "?alt=media"
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, address, nil)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip") // set by hand, so that net/http does not unpack
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil
	case err != nil || resp.StatusCode != http.StatusOK:
		tb.Fatalf("%s: %s, %v", name, resp.Status, err)
	}
	return data
}
