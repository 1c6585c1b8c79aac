package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// overtake holds a stale owner's write after it has looked at the mark, and
// lets a newer owner act. It returns the fault that it finds afterwards, or "".
// strip names the conditions that the stale owner's client leaves out.
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
		skip = 1 // lets the upload beside pass, and holds the copy
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
	case mark != stamp(11, 2, 0).Mark():
		return fmt.Sprintf("the mark is %+v", mark)
	case !errors.Is(err, fence.ErrStale):
		return fmt.Sprintf("the stale owner was told: %v", err)
	}
	return ""
}

// TestARaiseBetweenAStaleWritersLookAndItsWrite: the raise changes only the
// metageneration, and neither bytes nor generation.
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

// TestARewriteOfTheSameBytesBetweenAStaleWritersLookAndItsWrite: the checksum
// stays, and the metageneration starts again at the same number. Only the
// generation changes.
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

// TestALostReplyAndThenAnotherChange: the write was made, its reply was lost,
// and then a newer owner acts. The outcome is unknown. The write is neither
// refused nor made twice. A raise is decided again, because raising twice does
// no harm.
func TestALostReplyAndThenAnotherChange(t *testing.T) {
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
	lose(stamp(15, 5, 0)) // a stamp of the same key: it does not undo the rekey, and hides it
	if _, err := g.Rekey(ctx, stamp(1, 1, 0).Key, "ann", "test"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a rekey: %v, want unknown", err)
	}
	if mark, err := newer.Mark(ctx); err != nil || mark != stamp(15, 5, 0).Mark() {
		t.Errorf("the mark is %+v, %v", mark, err)
	}
}

// TestAGuardedWriteUnderFaults: at every request there is each bad answer and a
// cut connection, with the request carried out and without. A numbered write is
// made once, or known not to be made.
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

func TestADamagedMarkAdmitsNobody(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	g := openGuard(t, server.Bucket(t), "out.json", GuardOptions{Connection: at(server.Endpoint)})
	if _, err := g.Write(t.Context(), stamp(10, 1, 0), strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{", "[]", `{"key":"a//b","token":1}`, `{"key":"a","token":-1}`, `{"key":"a","token":1,"grant":"x"}`} {
		if _, err := g.bucket.patch(t.Context(), "out.json", map[string]string{metaMark: text}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(t.Context(), stamp(20, 2, 0), strings.NewReader("never")); !errors.Is(err, ErrMarkDamaged) {
			t.Errorf("the mark %s: %v", text, err)
		}
	}
}
