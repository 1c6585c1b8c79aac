package gcs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAnAbortedUploadLeavesNothingThatCounts: it may leave an object beside,
// and a sweep removes that when it is old.
func TestAnAbortedUploadLeavesNothingThatCounts(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name := server.Bucket(t)
	g := openGuard(t, name, "big.bin", GuardOptions{Connection: at(server.Endpoint), InMemory: 1 << 10, chunk: 1 << 18})
	ctx := t.Context()
	long := bytes.Repeat([]byte("0123456789abcdef"), (3*g.chunk/2)/16) // more than one chunk
	if _, err := g.Write(ctx, stamp(10, 1, 0), bytes.NewReader(long)); err != nil {
		t.Fatal(err)
	}
	if content, _, err := g.content(ctx); err != nil || !bytes.Equal(content, long) {
		t.Fatalf("a content in several chunks: %d bytes of %d, %v", len(content), len(long), err)
	}
	broken := errors.New("the source broke")
	for what, r := range map[string]io.Reader{
		"its source breaks in the first chunk":  io.MultiReader(bytes.NewReader(long[:g.chunk/2]), failing{broken}),
		"its source breaks in the second chunk": io.MultiReader(bytes.NewReader(long), failing{broken}),
	} {
		if _, err := g.Write(ctx, stamp(11, 2, 0), r); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want its own error", what, err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	if _, err := g.Write(cancelled, stamp(11, 2, 0), io.MultiReader(bytes.NewReader(long), calling{cancel}, bytes.NewReader(long))); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if mark, err := g.Mark(ctx); err != nil || mark != stamp(10, 1, 0).Mark() {
		t.Errorf("after aborted writes the mark is %+v, %v", mark, err)
	}
	if content, _, err := g.content(ctx); err != nil || !bytes.Equal(content, long) {
		t.Errorf("after aborted writes the content is another, %v", err)
	}
	if left := leftUploads(t, g); len(left) != 0 {
		t.Errorf("aborted writes left %q", left)
	}

	// A writer died between the upload and the copy. Young uploads stay, old
	// ones go.
	if _, err := g.stage(ctx, g.uploadName(), bytes.NewReader(long)); err != nil {
		t.Fatal(err)
	}
	if n, err := g.Sweep(ctx); n != 0 || err != nil {
		t.Errorf("a sweep has removed %d young uploads, %v", n, err)
	}
	later := newProxy(t, server.Endpoint)
	later.on(func(*http.Request) *fault { return &fault{} })
	later.shift = 25 * time.Hour
	tomorrow := openGuard(t, name, "big.bin", GuardOptions{Connection: at(later.URL), SkipProbe: true})
	if n, err := tomorrow.Sweep(ctx); n != 1 || err != nil {
		t.Errorf("a sweep a day later has removed %d, %v", n, err)
	}
	if left := leftUploads(t, g); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type calling struct{ f func() }

func (c calling) Read([]byte) (int, error) { c.f(); return 0, io.EOF }

func leftUploads(t *testing.T, g *Guard) []string {
	t.Helper()
	var names []string
	for page, err := range g.bucket.pages(t.Context(), g.uploadPrefix()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page {
			names = append(names, o.Name)
		}
	}
	return names
}

// TestAGuardedWriteKeepsOtherAttributes: a guarded write replaces the content
// and the mark. It keeps the other attributes and the metadata of others.
func TestAGuardedWriteKeepsOtherAttributes(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	for _, inMemory := range []int{100, 4} {
		name := server.Bucket(t)
		g := openGuard(t, name, "page.html", GuardOptions{Connection: at(server.Endpoint), InMemory: inMemory})
		g.bucket.putOrdinary(t, "page.html", ordinary{
			ContentType: "text/html", CacheControl: "max-age=60", Metadata: map[string]string{"team": "docs"},
		}, strings.NewReader("before"))
		receipt, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("after that"))
		if err != nil || !receipt.Adopted || receipt.Bytes != 10 {
			t.Fatalf("%+v, %v", receipt, err)
		}
		seen := g.bucket.ordinary(t, "page.html")
		if seen.ContentType != "text/html" || seen.CacheControl != "max-age=60" || seen.Metadata["team"] != "docs" {
			t.Errorf("in memory %d: %+v", inMemory, seen)
		}
		if receipt, err = g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("again")); err != nil || receipt.Adopted {
			t.Errorf("the second write: %+v, %v", receipt, err)
		}
	}
}

// TestALongUploadOutlivesAFailedRequest: its source cannot be read again.
func TestALongUploadOutlivesAFailedRequest(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	g := openGuard(t, name, "long.bin", GuardOptions{Connection: at(way.URL), SkipProbe: true, InMemory: 1 << 10, chunk: 1 << 18})
	long := bytes.Repeat([]byte("0123456789abcdef"), (g.chunk+1<<16)/16)
	uploads := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/upload/") }
	for n := range int64(3) { // the request that begins the upload, and two chunks
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

// TestPlainContentIsNotDeclaredAsGzip: even if the old content was packed. New
// packed content stays declared as packed.
func TestPlainContentIsNotDeclaredAsGzip(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, "content")
	_ = z.Close()
	for _, inMemory := range []int{100, 4} {
		g := openGuard(t, server.Bucket(t), "page.html", GuardOptions{Connection: at(server.Endpoint), InMemory: inMemory})
		g.bucket.putOrdinary(t, "page.html", ordinary{ContentEncoding: "gzip"}, bytes.NewReader(packed.Bytes()))
		for _, c := range []struct{ content, want string }{{packed.String(), "gzip"}, {"plain content", ""}} {
			if _, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader(c.content)); err != nil {
				t.Fatal(err)
			}
			if seen := g.bucket.ordinary(t, "page.html"); seen.ContentEncoding != c.want {
				t.Errorf("in memory %d: %q is said to be %q", inMemory, c.content, seen.ContentEncoding)
			}
		}
	}
}
