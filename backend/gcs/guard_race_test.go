package gcs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/storage"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
)

// overtake holds a stale owner's write after it has looked at the mark, lets a newer owner act, and says what is wrong afterwards. strip are the conditions that the stale owner's
// client leaves out.
func overtake(t *testing.T, inMemory int, act func(ctx context.Context, newer *Guard) error, strip ...string) string {
	t.Helper()
	server := testenv.GCSExact(t)
	name, way := server.Bucket(t), &carrier{strip: strip}
	newer := openGuard(t, name, "out.json", GuardOptions{Connection: at(server.Endpoint)})
	stale := openGuard(t, name, "out.json", GuardOptions{Connection: Connection{Endpoint: server.Endpoint, Transport: way}, SkipProbe: true, InMemory: inMemory})
	ctx := t.Context()
	if _, err := newer.Write(ctx, stamp(10, 1, 0), strings.NewReader("the same bytes")); err != nil {
		t.Fatal(err)
	}
	skip := 0
	if inMemory > 0 {
		skip = 1 // the upload beside; then comes the copy
	}
	arrived, release := way.holdAfter(skip)
	failed := make(chan error, 1)
	go func() {
		_, err := stale.Write(ctx, stamp(10, 1, 0), strings.NewReader("of the stale owner"))
		failed <- err
	}()
	select {
	case <-arrived:
	case <-time.After(testenv.Patience):
		t.Fatal("the stale owner sends no write")
	}
	if err := act(ctx, newer); err != nil {
		t.Fatal(err)
	}
	release()
	err := <-failed
	content, _, readErr := newer.content(ctx)
	mark, markErr := newer.Mark(ctx)
	switch {
	case readErr != nil || markErr != nil:
		t.Fatal(readErr, markErr)
	case string(content) != "the same bytes":
		return fmt.Sprintf("the content is %q", content)
	case mark != fence.Mark(stamp(11, 2, 0)):
		return fmt.Sprintf("the mark is %+v", mark)
	case !errors.Is(err, fence.ErrStale):
		return fmt.Sprintf("the stale owner was told: %v", err)
	}
	return ""
}

// TestARaiseBetweenAStaleWritersLookAndItsWrite: the raise changes no bytes and no generation, only the metageneration.
func TestARaiseBetweenAStaleWritersLookAndItsWrite(t *testing.T) {
	t.Parallel()
	raise := func(ctx context.Context, newer *Guard) error {
		_, err := newer.Raise(ctx, stamp(11, 2, 0))
		return err
	}
	for _, inMemory := range []int{0, 8} {
		if wrong := overtake(t, inMemory, raise); wrong != "" {
			t.Error(wrong)
		}
		if overtake(t, inMemory, raise, "ifMetagenerationMatch") == "" {
			t.Error("a client that leaves out the condition on the metageneration was not caught")
		}
	}
}

// TestARewriteOfTheSameBytesBetweenAStaleWritersLookAndItsWrite: the checksum stays, the metageneration begins again at the same number; only the generation changes.
func TestARewriteOfTheSameBytesBetweenAStaleWritersLookAndItsWrite(t *testing.T) {
	t.Parallel()
	rewrite := func(ctx context.Context, newer *Guard) error {
		_, err := newer.Write(ctx, stamp(11, 2, 0), strings.NewReader("the same bytes"))
		return err
	}
	for _, inMemory := range []int{0, 8} {
		if wrong := overtake(t, inMemory, rewrite); wrong != "" {
			t.Error(wrong)
		}
		if overtake(t, inMemory, rewrite, "ifGenerationMatch") == "" {
			t.Error("a client that leaves out the condition on the generation was not caught")
		}
	}
}

// TestALostReplyAndAnotherChangeSince: the write was made, nobody said so, and before it is asked about a newer owner acts. It is unknown, and not taken for refused or made twice; a raise, which does no
// harm twice, is decided anew.
func TestALostReplyAndAnotherChangeSince(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	g := openGuard(t, name, "out.json", GuardOptions{Connection: at(way.URL), SkipProbe: true})
	newer := openGuard(t, name, "out.json", GuardOptions{Connection: at(server.Endpoint)})
	ctx := t.Context()
	lose := func(next fence.Stamp) {
		way.on(nth(1, isWrite, &fault{delivered: true, cut: true, after: func() {
			if _, err := newer.Raise(ctx, next); err != nil {
				t.Error(err)
			}
		}}))
	}
	lose(stamp(11, 2, 0))
	if _, err := g.Write(ctx, stamp(10, 1, 0), strings.NewReader("content")); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, errSuperseded) {
		t.Errorf("a write: %v, want unknown", err)
	}
	lose(stamp(13, 4, 0))
	if _, err := g.Raise(ctx, stamp(12, 3, 0)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a raise: %v, want stale", err)
	}
	lose(stamp(15, 5, 0)) // of the same key: the move is then undone by nobody, and known to nobody
	if _, err := g.Rekey(ctx, stamp(1, 1, 0).Key, "ann", "test"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a rekey: %v, want unknown", err)
	}
	if mark, err := newer.Mark(ctx); err != nil || mark != fence.Mark(stamp(15, 5, 0)) {
		t.Errorf("the mark is %+v, %v", mark, err)
	}
}

// TestAGuardedWriteUnderFaults: at every request, each bad answer and a cut connection, with the request carried out and without. A numbered write is made once or known not to be.
func TestAGuardedWriteUnderFaults(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name := server.Bucket(t)
	for _, inMemory := range []int{100, 4} {
		for _, delivered := range []bool{false, true} {
			for _, status := range append([]int{0}, statuses...) {
				t.Run(fmt.Sprintf("status %d, delivered %v, in memory %d", status, delivered, inMemory), func(t *testing.T) {
					t.Parallel()
					way := newProxy(t, server.Endpoint)
					object := "faults/" + strings.ReplaceAll(t.Name(), "/", "-")
					g := openGuard(t, name, object, GuardOptions{Connection: at(way.URL), SkipProbe: true, InMemory: inMemory, patience: 5 * time.Millisecond})
					for step := int64(1); step <= 3; step++ {
						f := &fault{status: status, cut: status == 0, delivered: delivered}
						s, text := stamp(10, 1, uint64(step)), fmt.Sprintf("content %d", step)
						way.on(nth(step, func(*http.Request) bool { return true }, f))
						_, err := g.Write(t.Context(), s, strings.NewReader(text))
						way.on(nil)
						for errors.Is(err, store.ErrUnknown) {
							_, err = g.Write(t.Context(), s, strings.NewReader(text))
						}
						if err != nil && !errors.Is(err, fence.ErrRepeated) {
							t.Fatalf("step %d: %v", step, err)
						}
						if content, _, err := g.content(t.Context()); err != nil || string(content) != text {
							t.Fatalf("step %d: the content is %q, %v", step, content, err)
						}
						way.on(nth(min(step, 2), func(*http.Request) bool { return true }, f))
						_, err = g.Raise(t.Context(), s)
						way.on(nil)
						for errors.Is(err, store.ErrUnknown) {
							_, err = g.Raise(t.Context(), s)
						}
						if err != nil {
							t.Fatalf("raise %d: %v", step, err)
						}
					}
				})
			}
		}
	}
}

// TestAnAbortedUploadLeavesNothingThatCounts, and what it may leave beside is removed by a sweep when it is old.
func TestAnAbortedUploadLeavesNothingThatCounts(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name := server.Bucket(t)
	g := openGuard(t, name, "big.bin", GuardOptions{Connection: at(server.Endpoint), InMemory: 1 << 10})
	ctx := t.Context()
	long := bytes.Repeat([]byte("0123456789abcdef"), (3*chunk/2)/16) // more than one chunk
	if _, err := g.Write(ctx, stamp(10, 1, 0), bytes.NewReader(long)); err != nil {
		t.Fatal(err)
	}
	if content, _, err := g.content(ctx); err != nil || !bytes.Equal(content, long) {
		t.Fatalf("a content in several chunks: %d bytes of %d, %v", len(content), len(long), err)
	}
	broken := errors.New("the source broke")
	for what, r := range map[string]io.Reader{
		"its source breaks in the first chunk":  io.MultiReader(bytes.NewReader(long[:chunk/2]), failing{broken}),
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
	if mark, err := g.Mark(ctx); err != nil || mark != fence.Mark(stamp(10, 1, 0)) {
		t.Errorf("after aborted writes the mark is %+v, %v", mark, err)
	}
	if content, _, err := g.content(ctx); err != nil || !bytes.Equal(content, long) {
		t.Errorf("after aborted writes the content is another, %v", err)
	}
	if left := beside(t, g); len(left) != 0 {
		t.Errorf("aborted writes left %q", left)
	}

	// A writer that died between the upload and the copy: young uploads stay, old ones go.
	if _, err := g.stage(ctx, g.bucket.handle.Object(g.beside()), bytes.NewReader(long)); err != nil {
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
	if left := beside(t, g); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type calling struct{ f func() }

func (c calling) Read([]byte) (int, error) { c.f(); return 0, io.EOF }

func beside(t *testing.T, g *Guard) []string {
	t.Helper()
	var names []string
	for page, err := range g.bucket.pages(t.Context(), g.besides()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page {
			names = append(names, o.Name)
		}
	}
	return names
}

// TestAnObjectKeepsWhatIsNotContent: a guarded write replaces the bytes and the mark, not how the object is served, nor other people's metadata.
func TestAnObjectKeepsWhatIsNotContent(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	for _, inMemory := range []int{100, 4} {
		name := server.Bucket(t)
		g := openGuard(t, name, "page.html", GuardOptions{Connection: at(server.Endpoint), InMemory: inMemory})
		w := g.bucket.handle.Object("page.html").NewWriter(t.Context())
		w.ContentType, w.CacheControl, w.Metadata = "text/html", "max-age=60", map[string]string{"team": "docs"}
		if _, err := io.WriteString(w, "before"); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		receipt, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("after that"))
		if err != nil || !receipt.Adopted || receipt.Bytes != 10 {
			t.Fatalf("%+v, %v", receipt, err)
		}
		attrs, err := g.bucket.handle.Object("page.html").Attrs(t.Context())
		if err != nil || attrs.ContentType != "text/html" || attrs.CacheControl != "max-age=60" || attrs.Metadata["team"] != "docs" {
			t.Errorf("in memory %d: %+v, %v", inMemory, attrs, err)
		}
		if receipt, err = g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("again")); err != nil || receipt.Adopted {
			t.Errorf("the second write: %+v, %v", receipt, err)
		}
	}
}

// TestADamagedMarkAdmitsNobody.
func TestADamagedMarkAdmitsNobody(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	g := openGuard(t, server.Bucket(t), "out.json", GuardOptions{Connection: at(server.Endpoint)})
	if _, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{", "[]", `{"key":"a//b","token":1}`, `{"key":"a","token":-1}`, `{"key":"a","token":1,"grant":"x"}`} {
		if _, err := g.bucket.handle.Object("out.json").Update(t.Context(), storage.ObjectAttrsToUpdate{Metadata: map[string]string{metaMark: text}}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(t.Context(), stamp(20, 2, 0), strings.NewReader("never")); !errors.Is(err, ErrMarkDamaged) {
			t.Errorf("the mark %s: %v", text, err)
		}
	}
}

// TestAGuardIsOpenedByURL and says its target so that others can open the same.
func TestAGuardIsOpenedByURL(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	url := "gs://" + server.Bucket(t) + "/out/a%20report%231.json?endpoint=" + server.Endpoint
	g, err := guard.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.(guard.Artifact).Write(t.Context(), stamp(10, 1, 0), strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	again, err := guard.Open(t.Context(), g.Target())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if mark, err := again.Mark(t.Context()); err != nil || mark != fence.Mark(stamp(10, 1, 0)) || again.(*Guard).object != "out/a report#1.json" {
		t.Errorf("%s is of %q, with the mark %+v, %v", g.Target(), again.(*Guard).object, mark, err)
	}
	for _, bad := range []string{"gs://bucket", "gs://bucket/", "gs://bucket/folder/", "gs://bucket/x?retention=1h", "gs://bucket/x#y", "gs://bucket/" + strings.Repeat("x", 1000)} {
		if _, err := guard.Open(t.Context(), bad); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%.60s: %v, want invalid", bad, err)
		}
	}
}
