package chaos

import (
	"context"
	"slices"
	"strings"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// testbedEtcd is a cluster of three members for leases and resources. Each
// client has a link of its own to every member.
func testbedEtcd(_ context.Context, s *stand) (*testbed, error) {
	cluster := testenv.EtcdThree(s, "unsafe-no-fsync: true") // only processes are killed, not machines
	return &testbed{
		stand: s, hosts: cluster.Addrs(),
		urls: func(hosts []string) (string, string) {
			all := strings.Join(hosts, ",")
			return "etcd://" + all + "/leases", all
		},
		servers: []server{
			members(s, "the leader of etcd", func() []*testenv.EtcdMember { return leaderFirst(s, cluster)[:1] }),
			members(s, "a follower of etcd", func() []*testenv.EtcdMember { return leaderFirst(s, cluster)[1:2] }),
			members(s, "most of etcd", func() []*testenv.EtcdMember { return leaderFirst(s, cluster)[:2] }),
		},
	}, nil
}

// members describes how a fault hits several members at once. It chooses them
// when the fault begins.
func members(s *stand, name string, choose func() []*testenv.EtcdMember) server {
	var victims []*testenv.EtcdMember
	return server{
		name: name,
		kill: func() {
			victims = choose()
			for _, m := range victims {
				m.Kill()
			}
		},
		restart: func() {
			for _, m := range victims {
				m.Restart(s)
			}
		},
		pause: func() {
			victims = choose()
			for _, m := range victims {
				m.Pause(s)
			}
		},
		resume: func() {
			for _, m := range victims {
				m.Resume()
			}
		},
	}
}

// leaderFirst returns the members of a cluster, its leader first.
func leaderFirst(s *stand, cluster *testenv.EtcdCluster) []*testenv.EtcdMember {
	leader := cluster.Leader(s)
	others := slices.DeleteFunc(slices.Clone(cluster.Members), func(m *testenv.EtcdMember) bool { return m == leader })
	return append([]*testenv.EtcdMember{leader}, others...)
}
