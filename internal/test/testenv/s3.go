package testenv

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// S3Server is an S3 server: versitygw, which has real conditional writes. Its
// process can be killed, paused and started again.
type S3Server struct {
	*Process
	// Endpoint is the server's URL. Bucket exists already.
	Endpoint, Bucket string
	// AccessKey and SecretKey may do everything.
	AccessKey, SecretKey string
	prefix               string
}

// Region returns the region that requests must be signed for.
func (s *S3Server) Region() string { return "us-east-1" }

// Prefix returns the beginning of this test's objects, without a slash at its
// end. On a shared server no other test has the same.
func (s *S3Server) Prefix() string { return s.prefix }

// URL returns the URL of a path under the test's prefix, as users write it.
func (s *S3Server) URL(path string) string {
	u := url.URL{
		Scheme: "s3", Host: s.Bucket, Path: "/" + s.prefix + path,
		RawQuery: url.Values{"endpoint": {s.Endpoint}, "region": {s.Region()}}.Encode(),
	}
	return u.String()
}

// Credentials returns the environment variables for clients in other processes.
func (s *S3Server) Credentials() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
}

var sharedS3 struct {
	sync.Mutex
	server *S3Server
	tests  atomic.Int64
}

// S3 returns the server that all tests of the binary share. Use only objects
// that begin with Prefix, and leave its process alone.
func S3(tb testing.TB) *S3Server {
	tb.Helper()
	if !diesWithUs { // nothing would stop it after the last test
		return S3Alone(tb)
	}
	path := builtS3(tb)
	sharedS3.Lock()
	defer sharedS3.Unlock()
	if sharedS3.server == nil || sharedS3.server.gone() {
		// It outlives this test, and so does its folder, which is in the
		// binary's.
		folder, err := os.MkdirTemp(filepath.Dir(os.Args[0]), "s3-") //nolint:usetesting // see above
		if err != nil {
			tb.Fatalf("testenv: %v", err)
		}
		s := newS3(tb, path, folder)
		s.Run(tb, s.Ready)
		sharedS3.server = s
	}
	mine := *sharedS3.server
	mine.prefix = fmt.Sprintf("test%d", sharedS3.tests.Add(1))
	return &mine
}

// S3Alone starts a server for this test.
func S3Alone(tb testing.TB) *S3Server {
	tb.Helper()
	path := builtS3(tb)
	s := newS3(tb, path, tb.TempDir())
	tb.Cleanup(s.Stop)
	s.Run(tb, s.Ready)
	return s
}

func builtS3(tb testing.TB) string {
	tb.Helper()
	return Built(tb, "versitygw", ".")
}

// newS3 makes a server that keeps its objects in a folder. Each folder in it is
// a bucket.
func newS3(tb testing.TB, path, folder string) *S3Server {
	tb.Helper()
	s := &S3Server{Bucket: "croft-test", AccessKey: "croft", SecretKey: "not a secret", prefix: "test"}
	objects, versions := filepath.Join(folder, "objects"), filepath.Join(folder, "versions")
	for _, dir := range []string{filepath.Join(objects, s.Bucket), versions} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatalf("testenv: %v", err)
		}
	}
	addr := loopback(FreePort(tb))
	s.Endpoint = "http://" + addr
	s.Process = &Process{name: "versitygw", command: func() *exec.Cmd {
		cmd := exec.Command(path, "-listen", addr, "-region", s.Region(), "-versions", versions, objects)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
		cmd.Dir = folder
		return cmd
	}}
	return s
}

// Restart starts a killed server again, on the same port and with its data on
// disk.
func (s *S3Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Run(tb, s.Ready)
}

// Ready returns nil when the server answers, even with a refusal.
func (s *S3Server) Ready() error {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(s.Endpoint)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
