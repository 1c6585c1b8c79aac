package mcp

import (
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// variantName is the variable that names the broken variant of a process.
const variantName = "CROFT_TEST_MCP_VARIANT"

// variant is a proxy with one thing wrong, and the test that must find it.
type variant struct {
	test  string
	wrong func(t *testing.T, o *Options)
}

// variants are the broken variants. Each runs in a process of its own, because
// the tests are those of the sound proxy.
var variants = map[string]variant{
	"messages pass as bytes": {"TestMembersThatNameCroftAreRemoved", func(*testing.T, *Options) {}},
	"nobody asks who is current": {"TestAReplacedAgentsCallBounces", func(_ *testing.T, o *Options) {
		o.Current = nil
	}},
	"each proxy has marks of its own": {"TestTheMarkRefusesWithoutTheStore", func(_ *testing.T, o *Options) {
		o.Marks = newWorld().open
	}},
	"each proxy has leases of its own": {"TestAProxyWaitsForItsNeighbour", func(t *testing.T, o *Options) {
		o.Client = newWorld().client(t, "proxy")
	}},
	"a write in doubt settles at once": {"TestDoubtClosesTheResource", func(_ *testing.T, o *Options) {
		o.Settle = time.Nanosecond
	}},
	"the server's hints are believed": {"TestAnnotationsCountIfTheyAreTrusted", func(_ *testing.T, o *Options) {
		o.TrustAnnotations = true
	}},
	"tasks go on after their answer": {"TestTasksAreHidden", func(_ *testing.T, o *Options) { o.Tasks = true }},
	"writes pass as reads": {"TestNobodyWritesWithoutAStamp", func(_ *testing.T, o *Options) {
		o.Reads = append(o.Reads, "write_file")
	}},
}

// breakIt makes the proxy of a test the variant of this process.
func breakIt(t *testing.T, o *Options) {
	t.Helper()
	if v, is := variants[os.Getenv(variantName)]; is {
		v.wrong(t, o)
	}
}

// serveVariant is Serve, or what a variant has in its place.
func serveVariant(ctx context.Context, in io.Reader, out io.Writer, up Upstream, o Options) error {
	if os.Getenv(variantName) != "messages pass as bytes" {
		return Serve(ctx, in, out, up, o)
	}
	go func() {
		defer up.In.Close()
		_, _ = io.Copy(up.In, in)
	}()
	_, err := io.Copy(out, up.Out)
	return err
}

// found matches the failure of a test.
var found = regexp.MustCompile(`--- FAIL: (\w+)`)

// TestBrokenVariantsAreCaught, each by a test of this package.
func TestBrokenVariantsAreCaught(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*testenv.Patience)
			defer cancel()
			c := exec.CommandContext(ctx, self, "-test.run=^"+v.test+"$")
			c.Env = append(os.Environ(), variantName+"="+name)
			out, err := c.CombinedOutput()
			by := found.FindSubmatch(out)
			if err == nil || by == nil {
				t.Fatalf("not caught: %v\n%s", err, out)
			}
			t.Logf("caught by %q", by[1])
		})
	}
}
