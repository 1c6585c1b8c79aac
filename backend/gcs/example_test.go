package gcs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/gcs"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// publish plays an owner, its successor, and the owner again, which wakes up
// after it was presumed dead. Stamps come from leases: lease.Stamp(), or
// CROFT_STAMP inside croft run.
func publish(ctx context.Context, out io.Writer, bucket string, o *gcs.GuardOptions) error {
	g, err := gcs.OpenGuard(ctx, bucket, "reports/today.json", o)
	if err != nil {
		return err
	}
	defer g.Close()
	older := fence.Stamp{Key: "jobs/report", Token: 41, Grant: "0123456789abcdef0123456789abcdef"}
	newer := fence.Stamp{Key: "jobs/report", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
	_, err = g.Write(ctx, older, strings.NewReader(`{"rows": 1}`))
	fmt.Fprintln(out, "older:", err)
	_, err = g.Raise(ctx, newer) // before it reads anything
	fmt.Fprintln(out, "newer raises:", err)
	_, err = g.Write(ctx, older, strings.NewReader(`{"rows": 2}`))
	fmt.Fprintln(out, "older is stale:", errors.Is(err, fence.ErrStale))
	return nil
}

// An object decides by itself whose writes still count. TestTheExample checks
// the output.
func ExampleOpenGuard() {
	if err := publish(context.Background(), os.Stdout, "my-bucket", nil); err != nil {
		fmt.Println(err)
	}
}

// TestTheExample runs the example on a test server.
func TestTheExample(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	var out strings.Builder
	if err := publish(t.Context(), &out, server.Bucket(t), &gcs.GuardOptions{Connection: gcs.Connection{Endpoint: server.Endpoint}}); err != nil {
		t.Fatal(err)
	}
	if want := "older: <nil>\nnewer raises: <nil>\nolder is stale: true\n"; out.String() != want {
		t.Errorf("the example printed:\n%s\nwant:\n%s", &out, want)
	}
}
