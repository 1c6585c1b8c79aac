package cli

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestMetricsGivePermissionsToTheirOwnFileAlone: while the new file is written,
// another user who may write to the folder puts a link in its place.
func TestMetricsGivePermissionsToTheirOwnFileAlone(t *testing.T) {
	folder, secret := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	swapped := 0
	source := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		files, err := os.ReadDir(folder)
		for _, file := range files {
			name := filepath.Join(folder, file.Name())
			err = errors.Join(err, os.Remove(name), os.Symlink(secret, name))
			swapped++
		}
		return nil, err
	})
	end, err := (&App{Stderr: io.Discard}).writeMetrics(filepath.Join(folder, "croft.prom"), source)
	if err != nil {
		t.Fatal(err)
	}
	end()
	info, err := os.Stat(secret)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || swapped == 0 {
		t.Errorf("after %d links the secret file has mode %v; want 0600", swapped, info.Mode())
	}
}

// TestMetricsKeepNoConnection: another process on the machine could keep so
// many connections open that croft could not reach the store any more.
func TestMetricsKeepNoConnection(t *testing.T) {
	var said strings.Builder
	end, err := (&App{Stderr: &said}).serveMetrics(":0", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	address := strings.TrimSuffix(strings.TrimPrefix(said.String(), "croft: metrics at http://"), "/metrics\n")
	if !strings.HasPrefix(address, "127.0.0.1:") {
		t.Fatalf("%q; want metrics on the loopback address", said.String())
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") {
		t.Errorf("the answer is %q, %v; want metrics, and the end of the connection", answer, err)
	}
}

// TestMetricsHaveFewConnections: another process opens new connections as fast
// as they are closed, and sends nothing.
func TestMetricsHaveFewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd := &crowd{closed: make(chan struct{})}
		server := metricsServer(prometheus.NewRegistry())
		var served sync.WaitGroup
		served.Go(func() { _ = serveFew(server, crowd) })
		for turn := range int64(3) {
			synctest.Wait()
			if n := crowd.accepted.Load(); n != (turn+1)*metricsConnections {
				t.Errorf("in turn %d there were %d connections so far, want %d more in each", turn, n, metricsConnections)
			}
			time.Sleep(5 * time.Second) // connections without a request are closed
		}
		_ = server.Close()
		served.Wait()
	})
}

// crowd is a listener that always has one more connection.
type crowd struct {
	net.Listener
	accepted atomic.Int64
	closed   chan struct{}
}

func (c *crowd) Accept() (net.Conn, error) {
	select {
	case <-c.closed:
		return nil, net.ErrClosed
	default:
	}
	c.accepted.Add(1)
	conn, _ := net.Pipe()
	return conn, nil
}

func (c *crowd) Close() error {
	close(c.closed)
	return nil
}

// TestEverybodyMayReadAReplacedFile: the node exporter is another user.
func TestEverybodyMayReadAReplacedFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "croft.prom")
	for _, content := range []string{"one", "two"} {
		if err := ReplaceFile(path, func(w io.Writer) error { _, err := io.WriteString(w, content); return err }); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || string(text) != content {
			t.Errorf("the file holds %q, %v; want %q", text, err, content)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("the file is %v, %v; want mode 0644", info, err)
		}
	}
	full := errors.New("the disk is full")
	if err := ReplaceFile(path, func(io.Writer) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
	files, err := os.ReadDir(folder)
	if text, _ := os.ReadFile(path); string(text) != "two" || len(files) != 1 || err != nil {
		t.Errorf("after a failure the file holds %q, and the folder %v, %v; want the old file alone", text, files, err)
	}
}
