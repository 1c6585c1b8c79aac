package s3_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/s3"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// counting counts requests by method.
type counting struct{ reads, writes atomic.Int64 }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		c.reads.Add(1)
	} else {
		c.writes.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestAWaiterOnlyReads: it reads once for each poll, about eight times in the
// first five seconds, and then once a second.
func TestAWaiterOnlyReads(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	dial := func(c *counting) *croft.Client {
		client := awss3.New(awss3.Options{
			Region: server.Region(), BaseEndpoint: aws.String(server.Endpoint), UsePathStyle: true, HTTPClient: &http.Client{Transport: c},
			Credentials: credentials.NewStaticCredentialsProvider(server.AccessKey, server.SecretKey, ""),
		})
		st, err := s3.Open(t.Context(), client, server.Bucket, &s3.Options{Prefix: server.Prefix()})
		if err != nil {
			t.Fatal(err)
		}
		croftClient := croft.New(st, nil)
		t.Cleanup(func() { croftClient.Close(); st.Close() })
		return croftClient
	}
	holder, count := dial(&counting{}), &counting{}
	held, err := holder.Acquire(t.Context(), "wait/k", &croft.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Release(context.Background()) }()
	waiter := dial(count)
	count.reads.Store(0)
	count.writes.Store(0)
	if _, err := waiter.Acquire(t.Context(), "wait/k", &croft.LeaseOptions{TTL: time.Minute, WaitFor: 3 * time.Second}); !errors.Is(err, croft.ErrHeld) {
		t.Fatalf("waiting for what is held: %v", err)
	}
	// Polls come after 25, 50, 100, 200, 400 and 800 ms, and then every second,
	// with up to a quarter less by jitter. One more comes at the end.
	if reads, writes := count.reads.Load(), count.writes.Load(); reads > 12 || writes != 0 {
		t.Errorf("three seconds of waiting took %d reads and %d writes", reads, writes)
	}
}
