package chaos

import (
	"context"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// testbedS3 is one bucket for leases and resources.
func testbedS3(_ context.Context, s *stand) (*testbed, error) {
	gateway := testenv.S3Alone(s)
	return &testbed{
		stand: s, hosts: []string{strings.TrimPrefix(gateway.Endpoint, "http://")}, env: gateway.Credentials(),
		urls: func(hosts []string) (string, string) {
			query := url.Values{"endpoint": {"http://" + hosts[0]}, "region": {gateway.Region()}, "probe": {"off"}}
			return "s3://" + gateway.Bucket + "/leases?" + query.Encode(), "http://" + hosts[0] + "/" + gateway.Bucket
		},
		servers: []server{process("versitygw", gateway.Process, func() { gateway.Restart(s) })},
	}, nil
}

// testbedGCS is one bucket for leases and resources.
func testbedGCS(_ context.Context, s *stand) (*testbed, error) {
	fake := testenv.GCSAlone(s, "-keep", s.TempDir())
	bucket := fake.Bucket(s)
	return &testbed{
		stand: s, hosts: []string{strings.TrimPrefix(fake.Endpoint, "http://")},
		urls: func(hosts []string) (string, string) {
			query := url.Values{"endpoint": {"http://" + hosts[0]}, "probe": {"false"}}
			return "gs://" + bucket + "/leases?" + query.Encode(), "http://" + hosts[0] + "/" + bucket
		},
		servers: []server{process("fake-gcs-server", fake.Process, func() { fake.Restart(s) })},
	}, nil
}
