package chaos

import (
	"context"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/internal/testenv"
)

// groundEtcd is one member for both.
func groundEtcd(_ context.Context, s *stand) (*ground, error) {
	cluster := testenv.EtcdAlone(s, "unsafe-no-fsync: true") // processes are killed, not machines
	m := cluster.Members[0]
	return &ground{
		stand: s, hosts: []string{m.Addr},
		urls:    func(hosts []string) (string, string) { return "etcd://" + hosts[0] + "/leases", hosts[0] },
		servers: []server{process("etcd", m.Process, func() { m.Restart(s) })},
	}, nil
}

// groundS3 is one bucket for both.
func groundS3(_ context.Context, s *stand) (*ground, error) {
	gateway := testenv.S3Alone(s)
	return &ground{
		stand: s, hosts: []string{strings.TrimPrefix(gateway.Endpoint, "http://")}, env: gateway.Credentials(),
		urls: func(hosts []string) (string, string) {
			query := url.Values{"endpoint": {"http://" + hosts[0]}, "region": {gateway.Region()}, "probe": {"off"}}
			return "s3://" + gateway.Bucket + "/leases?" + query.Encode(), "http://" + hosts[0] + "/" + gateway.Bucket
		},
		servers: []server{process("versitygw", gateway.Process, func() { gateway.Restart(s) })},
	}, nil
}

// groundGCS is one bucket for both. The server is never killed: the front that evaluates what a guard's conditions need keeps what it knows in memory. It is stopped, and cut off from everybody.
func groundGCS(_ context.Context, s *stand) (*ground, error) {
	fake := testenv.GCSAlone(s, "-exact")
	bucket := fake.Bucket(s)
	return &ground{
		stand: s, hosts: []string{strings.TrimPrefix(fake.Endpoint, "http://")},
		urls: func(hosts []string) (string, string) {
			query := url.Values{"endpoint": {"http://" + hosts[0]}, "probe": {"false"}}
			return "gs://" + bucket + "/leases?" + query.Encode(), "http://" + hosts[0] + "/" + bucket
		},
		servers: []server{{name: "fake-gcs-server", pause: func() { fake.Pause(s) }, resume: fake.Resume}},
	}, nil
}
