package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// EtcdMember is one member of an etcd cluster, in a process of its own. It can
// be killed, paused and started again.
type EtcdMember struct {
	*Process
	// Addr is host:port for clients.
	Addr   string
	scheme string
	client *http.Client
}

// EtcdCluster is an etcd cluster of one or several members.
type EtcdCluster struct {
	Members []*EtcdMember
	prefix  string
}

// Prefix returns the beginning of this test's keys. On a shared cluster no
// other test has the same.
func (c *EtcdCluster) Prefix() string { return c.prefix }

// Apart returns the same cluster with another prefix, for one more user in the
// same test.
func (c *EtcdCluster) Apart() *EtcdCluster {
	mine := *c
	mine.prefix = fmt.Sprintf("%s%d/", c.prefix, sharedEtcd.tests.Add(1))
	return &mine
}

// Addrs returns the addresses of all members.
func (c *EtcdCluster) Addrs() []string {
	addrs := make([]string, len(c.Members))
	for i, m := range c.Members {
		addrs[i] = m.Addr
	}
	return addrs
}

// URL returns the URL of the cluster with this test's prefix, as Croft takes
// it.
func (c *EtcdCluster) URL() string {
	return "etcd://" + strings.Join(c.Addrs(), ",") + "/" + c.prefix
}

var sharedEtcd struct {
	sync.Mutex
	cluster *EtcdCluster
	tests   atomic.Int64
}

// Etcd returns the single member that all tests of the binary share. Use only
// keys that begin with Prefix, and leave its process and settings alone. It
// does not sync to disk.
func Etcd(tb testing.TB) *EtcdCluster {
	tb.Helper()
	if !diesWithUs { // nothing would stop it after the last test
		return EtcdAlone(tb, "unsafe-no-fsync: true")
	}
	path := Built(tb, "etcd", ".")
	sharedEtcd.Lock()
	defer sharedEtcd.Unlock()
	if sharedEtcd.cluster == nil || sharedEtcd.cluster.Members[0].gone() {
		// It outlives this test, and so does its folder, which is in the
		// binary's.
		folder, err := os.MkdirTemp(filepath.Dir(os.Args[0]), "etcd-") //nolint:usetesting // see above
		if err != nil {
			tb.Fatalf("testenv: %v", err)
		}
		sharedEtcd.cluster = startEtcd(tb, path, []string{folder}, "unsafe-no-fsync: true")
	}
	mine := *sharedEtcd.cluster
	mine.prefix = fmt.Sprintf("test%d/", sharedEtcd.tests.Add(1))
	return &mine
}

// EtcdAlone starts a single member for this test. settings are lines of etcd's
// configuration file ("quota-backend-bytes: 16777216"). They are added, or
// replace the usual ones.
func EtcdAlone(tb testing.TB, settings ...string) *EtcdCluster {
	tb.Helper()
	return etcd(tb, 1, settings...)
}

// EtcdThree starts a cluster of three members. It elects a new leader within a
// second.
func EtcdThree(tb testing.TB, settings ...string) *EtcdCluster {
	tb.Helper()
	return etcd(tb, 3, append([]string{"heartbeat-interval: 50", "election-timeout: 500"}, settings...)...)
}

func etcd(tb testing.TB, members int, settings ...string) *EtcdCluster {
	tb.Helper()
	path := Built(tb, "etcd", ".")
	folders := make([]string, members)
	for i := range folders {
		folders[i] = tb.TempDir()
	}
	c := startEtcd(tb, path, folders, settings...)
	for _, m := range c.Members {
		tb.Cleanup(m.Stop)
	}
	return c
}

// startEtcd starts a cluster. If a port is taken meanwhile, it tries again with
// other ports.
func startEtcd(tb testing.TB, path string, folders []string, settings ...string) *EtcdCluster {
	tb.Helper()
	for {
		c := newEtcd(tb, path, folders, settings...)
		if c.run(tb) {
			return c
		}
		for i, m := range c.Members {
			m.Stop()
			if err := os.RemoveAll(filepath.Join(folders[i], "data")); err != nil {
				tb.Fatalf("testenv: %v", err)
			}
		}
	}
}

// run starts all members and waits until each serves. It returns false if a
// port was taken.
func (c *EtcdCluster) run(tb testing.TB) bool {
	tb.Helper()
	for _, m := range c.Members { // no member is ready before a majority runs
		if err := m.Process.run(); err != nil {
			tb.Fatalf("testenv: starting etcd: %v", err)
		}
	}
	taken := false
	for _, m := range c.Members {
		Eventually(tb, "etcd is ready", func() error {
			for _, m := range c.Members { // a missing member may keep another from being ready
				taken = taken || m.gone() && strings.Contains(m.Output(), "address already in use")
			}
			if taken {
				return nil
			}
			if m.gone() {
				tb.Fatalf("testenv: etcd ended at once: %s", m.Output())
			}
			return m.Ready()
		})
	}
	return !taken
}

// Restart starts a killed member again, with its data on disk.
func (m *EtcdMember) Restart(tb testing.TB) {
	tb.Helper()
	m.Run(tb, m.Ready)
}

// Ready returns nil when the member serves and knows a leader.
func (m *EtcdMember) Ready() error {
	text, err := m.ask(http.MethodGet, "/health", "")
	if err == nil && !strings.Contains(text, `"health":"true"`) {
		err = errors.New(text)
	}
	return err
}

// Leads reports whether the member is the leader of its cluster.
func (m *EtcdMember) Leads() bool {
	text, err := m.ask(http.MethodPost, "/v3/maintenance/status", "{}")
	if err != nil {
		return false
	}
	leader, _, _ := strings.Cut(after(text, `"leader":"`), `"`)
	self, _, _ := strings.Cut(after(text, `"member_id":"`), `"`)
	return leader != "" && leader == self
}

func after(text, prefix string) string {
	_, rest, _ := strings.Cut(text, prefix)
	return rest
}

// Leader waits for a leader and returns it.
func (c *EtcdCluster) Leader(tb testing.TB) *EtcdMember {
	tb.Helper()
	var leader *EtcdMember
	Eventually(tb, "etcd has a leader", func() error {
		if i := slices.IndexFunc(c.Members, (*EtcdMember).Leads); i >= 0 {
			leader = c.Members[i]
			return nil
		}
		return errors.New("no member leads")
	})
	return leader
}

func (m *EtcdMember) ask(method, path, body string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, m.scheme+"://"+m.Addr+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// newEtcd writes the configuration of a cluster with one member for each
// folder.
func newEtcd(tb testing.TB, path string, folders []string, settings ...string) *EtcdCluster {
	tb.Helper()
	c := &EtcdCluster{prefix: "test/"}
	var peers, ring []string
	for i := range folders {
		peer := loopback(FreePort(tb))
		peers = append(peers, "http://"+peer)
		ring = append(ring, fmt.Sprintf("m%d=http://%s", i, peer))
	}
	for i, folder := range folders {
		m := &EtcdMember{Addr: loopback(FreePort(tb)), scheme: "http", client: &http.Client{
			Transport: &http.Transport{DisableKeepAlives: true},
		}}
		if slices.ContainsFunc(settings, func(line string) bool {
			return strings.HasPrefix(line, "client-transport-security:")
		}) {
			m.secure()
		}
		client := m.scheme + "://" + m.Addr
		lines := []string{
			fmt.Sprintf("name: m%d", i), "data-dir: " + filepath.Join(folder, "data"),
			"log-level: error", "log-outputs: [stderr]",
			"listen-client-urls: " + client, "advertise-client-urls: " + client,
			"listen-peer-urls: " + peers[i], "initial-advertise-peer-urls: " + peers[i],
			"initial-cluster: " + strings.Join(ring, ","), "initial-cluster-state: new",
			fmt.Sprintf("initial-cluster-token: %q", ring[0]),
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { // the test's settings replace these
			name, _, _ := strings.Cut(line, ":")
			return slices.ContainsFunc(settings, func(own string) bool { return strings.HasPrefix(own, name+":") })
		})
		lines = append(lines, settings...)
		file := filepath.Join(folder, "member.yaml")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			tb.Fatalf("testenv: %v", err)
		}
		m.Process = &Process{name: "etcd", command: func() *exec.Cmd {
			return exec.Command(path, "--config-file", file)
		}}
		c.Members = append(c.Members, m)
	}
	return c
}

// secure makes the health checks of a TLS member accept any certificate: they
// only ask whether it is up.
func (m *EtcdMember) secure() {
	m.scheme = "https"
	transport := m.client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // see above
}
