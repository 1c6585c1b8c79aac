package chaos

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// durableRedis starts a server that loses nothing when it is killed.
func durableRedis(s *stand) *testenv.RedisServer {
	return testenv.RedisAlone(s, "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
}

// replicaOf starts a replica of a server. After its promotion it is a durable
// server like any other.
func replicaOf(s *stand, primary *testenv.RedisServer) *testenv.RedisServer {
	replica := durableRedis(s)
	host, port, err := net.SplitHostPort(primary.Addr)
	if err == nil {
		_, err = replica.Ask("REPLICAOF", host, port)
	}
	if err != nil {
		s.Fatalf("making a replica: %v", err)
	}
	return replica
}

// testbedRedis has a primary and a replica for the leases, and another server
// for the values. A failover of the leases loses changes. The values are on a
// server of their own, because guards must protect them even when the lease
// store forgets.
func testbedRedis(_ context.Context, s *stand) (*testbed, error) {
	leases, values := durableRedis(s), durableRedis(s)
	replica := replicaOf(s, leases)
	g := &testbed{
		stand: s, hosts: []string{leases.Addr, values.Addr},
		urls: func(hosts []string) (string, string) { return "redis://" + hosts[0] + "/0", hosts[1] },
	}
	// The primary changes with every failover. Faults hit the current one.
	g.servers = []server{
		{
			name: "Redis (leases)",
			kill: func() { leases.Kill() }, restart: func() { leases.Restart(s) },
			pause: func() { leases.Pause(s) }, resume: func() { leases.Resume() },
		},
		process("Redis (values)", values.Process, func() { values.Restart(s) }),
	}
	g.failover = func(lag time.Duration, rewinding func(bool)) {
		inStep(s, replica)
		replica.Pause(s)
		if _, err := leases.Ask("CLIENT", "KILL", "TYPE", "replica"); err != nil {
			replica.Resume()
			s.Fatalf("cutting the replica off: %v", err)
		}
		time.Sleep(lag) // changes confirmed from now on are lost
		rewinding(true)
		leases.Kill()
		replica.Resume()
		replica.Promote(s)
		leases = replica
		g.move(0, leases.Addr)
		rewinding(false)
		replica = replicaOf(s, leases)
	}
	return g, nil
}

// inStep waits until a replica follows its primary.
func inStep(s *stand, replica *testenv.RedisServer) {
	testenv.Eventually(s, "the replica is in step", func() error {
		info, err := replica.Ask("INFO", "replication")
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New("its link is down")
		}
		return err
	})
}
