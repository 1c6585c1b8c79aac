package gcs

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/testenv"
)

// TestGuardConformance: an object keeps the law of writing, on a server that evaluates every condition.
func TestGuardConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardHarness(t, GuardOptions{}))
}

// TestGuardConformanceOfLongContents: the same when contents are streamed to an object beside and copied in place.
func TestGuardConformanceOfLongContents(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardHarness(t, GuardOptions{InMemory: 8}))
}

var objectsMade atomic.Int64

func guardHarness(t testing.TB, o GuardOptions) guardtest.Harness {
	server := testenv.GCSExact(t)
	name := server.Bucket(t)
	o.Connection.Endpoint = server.Endpoint
	return guardtest.Harness{Large: 1 << 18, Make: func(t testing.TB) guardtest.Resource {
		object := fmt.Sprintf("out/report %d: café.json", objectsMade.Add(1))
		reader := openGuard(t, name, object, o)
		return guardtest.Resource{
			Open: func(t testing.TB) guardtest.Handle { return guardtest.Artifact(openGuard(t, name, object, o)) },
			Read: reader.content,
			Audit: func(ctx context.Context) (string, error) {
				r, err := reader.Rekeyed(ctx)
				return fmt.Sprint(r), err
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

// content reads the object as ordinary readers do, except that it knows an object without content.
func (g *Guard) content(ctx context.Context) ([]byte, bool, error) {
	r, err := g.bucket.handle.Object(g.object).NewReader(ctx)
	if judge(err) == missing {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, r.Metadata()["Croft-Empty"] == "", err
}

func stamp(token fence.Token, grant int, seq uint64) fence.Stamp {
	return fence.Stamp{Key: "jobs/report", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", grant)), Seq: seq}
}
