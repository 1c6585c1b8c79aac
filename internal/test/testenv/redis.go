package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// RedisServer is a Redis server. Its process can be killed, paused and started
// again.
type RedisServer struct {
	*Process
	// Addr is host:port.
	Addr   string
	prefix string
	port   int
}

// Prefix returns the beginning of this test's keys. On a shared server no other
// test has the same.
func (s *RedisServer) Prefix() string { return s.prefix }

// URL returns the server's URL, as clients take it.
func (s *RedisServer) URL() string { return "redis://" + s.Addr + "/0" }

var sharedRedis struct {
	sync.Mutex
	server *RedisServer
	tests  atomic.Int64
}

// Redis returns the server that all tests of the binary share. Use only keys
// that begin with Prefix, and leave its process and settings alone.
func Redis(tb testing.TB) *RedisServer {
	tb.Helper()
	if !diesWithUs { // nothing would stop it after the last test
		return RedisAlone(tb)
	}
	path := Program(tb, "redis-server", "redis-server")
	sharedRedis.Lock()
	defer sharedRedis.Unlock()
	if sharedRedis.server == nil || sharedRedis.server.gone() {
		// It outlives this test, and so does its folder. It writes nothing
		// there.
		s := newRedis(tb, path, filepath.Dir(os.Args[0]), "--save", "", "--appendonly", "no")
		s.Run(tb, s.Ready)
		sharedRedis.server = s
	}
	mine := *sharedRedis.server
	mine.prefix = fmt.Sprintf("test%d:", sharedRedis.tests.Add(1))
	return &mine
}

// RedisAlone starts a server for this test, in a folder of its own, with more
// settings ("--appendonly", "yes"). By default it keeps nothing on disk.
func RedisAlone(tb testing.TB, settings ...string) *RedisServer {
	tb.Helper()
	path := Program(tb, "redis-server", "redis-server")
	s := newRedis(tb, path, tb.TempDir(), append([]string{"--save", "", "--appendonly", "no"}, settings...)...)
	tb.Cleanup(s.Stop)
	s.Run(tb, s.Ready)
	return s
}

// RedisPair starts a primary and a replica, and waits until the replica is in
// step.
func RedisPair(tb testing.TB, settings ...string) (primary, replica *RedisServer) {
	tb.Helper()
	primary = RedisAlone(tb, append([]string{"--repl-diskless-sync-delay", "0"}, settings...)...)
	replica = RedisAlone(tb, append([]string{"--replicaof", "127.0.0.1 " + strconv.Itoa(primary.port)}, settings...)...)
	Eventually(tb, "the replica is in step", func() error {
		info, err := replica.Ask("INFO", "replication")
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New("its link is down")
		}
		return err
	})
	return primary, replica
}

// RedisCluster starts a cluster of primaries that share the slots.
func RedisCluster(tb testing.TB, nodes int) []*RedisServer {
	tb.Helper()
	servers := make([]*RedisServer, nodes)
	for i := range servers {
		bus := FreePort(tb)
		servers[i] = RedisAlone(
			tb, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
			"--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", "60000",
		)
		first, last := i*slots/nodes, (i+1)*slots/nodes-1
		if _, err := servers[i].Ask("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
			Missing(tb, "this Redis makes no cluster of this kind (%v); install Redis 7 or newer", err)
		}
		if i > 0 {
			if _, err := servers[0].Ask(
				"CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(servers[i].port), strconv.Itoa(bus),
			); err != nil {
				tb.Fatalf("testenv: joining the cluster: %v", err)
			}
		}
	}
	for _, s := range servers {
		Eventually(tb, "the cluster is whole", func() error {
			info, err := s.Ask("CLUSTER", "INFO")
			if err == nil &&
				(!strings.Contains(info, "cluster_state:ok") ||
					!strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(nodes))) {
				err = errors.New("not yet")
			}
			return err
		})
	}
	return servers
}

// slots is the number of slots of a cluster.
const slots = 16384

// Promote makes a replica the primary, like a failover.
func (s *RedisServer) Promote(tb testing.TB) {
	tb.Helper()
	if _, err := s.Ask("REPLICAOF", "NO", "ONE"); err != nil {
		tb.Fatalf("testenv: promoting the replica: %v", err)
	}
}

// Restart starts a killed server again, on the same port and with its data on
// disk.
func (s *RedisServer) Restart(tb testing.TB) {
	tb.Helper()
	s.Run(tb, s.Ready)
}

func newRedis(tb testing.TB, path, folder string, settings ...string) *RedisServer {
	tb.Helper()
	s := &RedisServer{port: FreePort(tb), prefix: "test:"}
	s.Addr = loopback(s.port)
	args := append(
		[]string{
			"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", folder, "--daemonize",
			"no", "--protected-mode", "no",
		},
		settings...,
	)
	s.Process = &Process{name: "redis-server", command: func() *exec.Cmd { return exec.Command(path, args...) }}
	return s
}

// Ready returns nil when the server answers.
func (s *RedisServer) Ready() error {
	_, err := s.Ask("PING")
	return err
}

// Ask sends one command on a connection of its own. It returns the first line
// of a simple answer, or a whole text.
func (s *RedisServer) Ask(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[:1] {
	case "-":
		return "", errors.New(line[1:])
	case "$":
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n)
		_, err = io.ReadFull(r, text)
		return string(text), err
	}
	return line[1:], nil
}
