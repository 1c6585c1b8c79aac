package testenv

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// GCSServer is a server of the Google Cloud Storage API: fake-gcs-server, in a
// process of its own.
type GCSServer struct {
	*Process
	// Endpoint is its address as STORAGE_EMULATOR_HOST takes it: http://host:port.
	Endpoint string
}

var sharedGCS struct {
	sync.Mutex
	plain, exact *GCSServer
	buckets      atomic.Int64
}

// GCS returns the server that all tests of the binary share. Each test needs
// buckets of its own. The server evaluates ifGenerationMatch on uploads, and no
// other condition.
func GCS(tb testing.TB) *GCSServer {
	tb.Helper()
	return shareGCS(tb, &sharedGCS.plain)
}

// GCSExact returns a shared server that evaluates ifGenerationMatch and
// ifMetagenerationMatch on every operation that changes an object.
func GCSExact(tb testing.TB) *GCSServer {
	tb.Helper()
	return shareGCS(tb, &sharedGCS.exact, "-exact")
}

func shareGCS(tb testing.TB, shared **GCSServer, settings ...string) *GCSServer {
	tb.Helper()
	if !diesWithUs { // nothing would stop it after the last test
		return GCSAlone(tb, settings...)
	}
	path := Built(tb, "gcs", ".")
	sharedGCS.Lock()
	defer sharedGCS.Unlock()
	if *shared == nil || (*shared).gone() {
		s := newGCS(tb, path, settings...)
		s.Run(tb, s.Ready)
		*shared = s
	}
	return *shared
}

// GCSAlone starts a server for this test. With "-keep", FOLDER it is like
// GCSExact, and loses nothing when it is killed. With "-root", FOLDER it keeps
// what fake-gcs-server keeps by itself.
func GCSAlone(tb testing.TB, settings ...string) *GCSServer {
	tb.Helper()
	s := newGCS(tb, Built(tb, "gcs", "."), settings...)
	tb.Cleanup(s.Stop)
	s.Run(tb, s.Ready)
	return s
}

func newGCS(tb testing.TB, path string, settings ...string) *GCSServer {
	tb.Helper()
	addr := loopback(FreePort(tb))
	args := append([]string{"-listen", addr}, settings...)
	return &GCSServer{
		Endpoint: "http://" + addr,
		Process:  &Process{name: "gcs", command: func() *exec.Cmd { return exec.Command(path, args...) }},
	}
}

// Ready returns nil when the server answers.
func (s *GCSServer) Ready() error {
	return s.expect(http.MethodGet, "/_internal/healthcheck", "")
}

// Restart starts a killed server again, on the same port.
func (s *GCSServer) Restart(tb testing.TB) {
	tb.Helper()
	s.Run(tb, s.Ready)
}

// Bucket makes an empty bucket that no other test has.
func (s *GCSServer) Bucket(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test-%d", sharedGCS.buckets.Add(1))
	if err := s.expect(http.MethodPost, "/storage/v1/b", fmt.Sprintf(`{"name": %q}`, name)); err != nil {
		tb.Fatalf("testenv: making a bucket: %v", err)
	}
	return name
}

// expect sends a request that must succeed.
func (s *GCSServer) expect(method, path, body string) error {
	client := http.Client{Timeout: Patience}
	req, err := http.NewRequest(method, s.Endpoint+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return nil
}
