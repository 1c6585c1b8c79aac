package gcs

import (
	"errors"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAGuardIsOpenedByURL: its own target opens the same guard.
func TestAGuardIsOpenedByURL(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	url := "gs://" + server.Bucket(t) + "/out/a%20report%231.json?endpoint=" + server.Endpoint
	g, err := guard.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if name := g.(*Guard).object; name != "out/a report#1.json" {
		t.Errorf("%s is of %q", g.Target(), name)
	}
	guardtest.ByURL(t, g, "gs://bucket", "gs://bucket/", "gs://bucket/folder/", "gs://bucket/x?retention=1h", "gs://bucket/x#y", "gs://bucket/"+strings.Repeat("x", 1000))
}

// TestATargetLeadsToTheSameObject: also if the guard was not opened by a URL.
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
