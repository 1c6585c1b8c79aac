package gcs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestGuardConformance runs the whole suite of guards, on a server that
// evaluates every condition.
func TestGuardConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardHarness(t, GuardOptions{}))
}

// TestGuardConformanceOfLongContents does the same with content that is
// streamed to an object beside and copied in place.
func TestGuardConformanceOfLongContents(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardHarness(t, GuardOptions{InMemory: 8, chunk: 1 << 18}))
}

var objectsMade atomic.Int64

func guardHarness(t testing.TB, o GuardOptions) guardtest.Harness {
	server := testenv.GCSExact(t)
	name := server.Bucket(t)
	o.Connection.Endpoint = server.Endpoint
	return guardtest.Harness{Large: 1 << 19, Slow: true, Make: func(t testing.TB) guardtest.Resource {
		object := fmt.Sprintf("out/report %d: café.json", objectsMade.Add(1))
		reader := openGuard(t, name, object, o)
		return guardtest.Resource{
			Open: func(t testing.TB) guardtest.Handle { return guardtest.Artifact(openGuard(t, name, object, o)) },
			Read: reader.content,
			Signed: func(t testing.TB, keys *signed.Keys) guardtest.Handle {
				o := o
				o.Keys = keys
				return guardtest.Artifact(openGuard(t, name, object, o))
			},
		}
	}}
}

func openGuard(tb testing.TB, name, object string, o GuardOptions) *Guard {
	tb.Helper()
	g, err := OpenGuard(tb.Context(), name, object, &o)
	if err != nil {
		tb.Fatalf("OpenGuard: %v", err)
	}
	tb.Cleanup(func() { g.Close() })
	return g
}

// content reads the object like an ordinary reader, but recognises an object
// without content.
func (g *Guard) content(ctx context.Context) ([]byte, bool, error) {
	resp, err := g.bucket.api.Objects.Get(g.bucket.name, g.object).Context(ctx).Download()
	if judge(err) == missing {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return data, resp.Header.Get("X-Goog-Meta-Croft-Empty") == "", err
}

func stamp(token fence.Token, grant int, seq uint64) fence.Stamp {
	return fence.Stamp{Key: "jobs/report", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", grant)), Seq: seq}
}

// TestTheLongestMarkFits: an object's metadata has room for 8 KiB. The mark is
// always ASCII.
func TestTheLongestMarkFits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"k", "ü", "€", "😀", `"`, `\`, "<", "&"} {
		fill := func(most int) string { return strings.Repeat(text, most/len(text)) }
		mark := fence.Mark{Key: fill(fence.MaxKey), Token: fence.MaxToken, Grant: stamp(1, 1, 0).Grant, Seq: 1<<64 - 1}
		rekeyed := &guard.Rekeyed{From: fill(fence.MaxKey), Actor: fill(guard.MaxActor), Note: fill(guard.MaxNote), At: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)}
		meta, err := state{}.metadata(mark, objects.NewNonce(), rekeyed)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for name, value := range meta {
			size += len(name) + len(value)
			if strings.IndexFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
				t.Errorf("%q: %s is not ASCII", text, name)
			}
		}
		if size > 8<<10 {
			t.Errorf("%q: %d bytes", text, size)
		}
		back, err := (&Guard{}).read(&storage.Object{Metadata: meta})
		if err != nil || back.mark != mark || *back.rekeyed != *rekeyed {
			t.Errorf("%q: read back as %+v, %v", text, back, err)
		}
	}
}
