package s3

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
)

// dial makes a client of a server.
func dial(server *testenv.S3Server, change ...func(*awss3.Options)) *awss3.Client {
	return awss3.New(awss3.Options{
		Region: server.Region(), BaseEndpoint: aws.String(server.Endpoint), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(server.AccessKey, server.SecretKey, ""),
	}, change...)
}

// open opens a store under the test's prefix.
func open(tb testing.TB, server *testenv.S3Server, client *awss3.Client, o Options) *Store {
	tb.Helper()
	if o.Prefix == "" {
		o.Prefix = server.Prefix()
	}
	o.sweepEvery, o.pageSize = -1, 20 // no random sweeps, and long listings have several pages
	st, err := Open(tb.Context(), client, server.Bucket, &o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { st.Close() })
	return st
}

// wipe removes all objects of the test.
func wipe(tb testing.TB, server *testenv.S3Server, client *awss3.Client) {
	tb.Helper()
	ctx := context.Background()
	pages := awss3.NewListObjectsV2Paginator(client, &awss3.ListObjectsV2Input{Bucket: &server.Bucket, Prefix: aws.String(server.Prefix() + "/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		var names []types.ObjectIdentifier
		for _, o := range page.Contents {
			names = append(names, types.ObjectIdentifier{Key: o.Key})
		}
		if len(names) == 0 {
			return
		}
		if _, err := client.DeleteObjects(ctx, &awss3.DeleteObjectsInput{Bucket: &server.Bucket, Delete: &types.Delete{Objects: names}}); err != nil {
			tb.Fatal(err)
		}
	}
}

// place makes an empty store on the shared server. The suite moves its clock.
func place(tb testing.TB) storetest.Harness {
	server := testenv.S3(tb)
	client, clock := dial(server), storetest.NewClock()
	return storetest.Harness{
		Open: func(tb testing.TB, o storetest.Options) store.Store {
			return open(tb, server, client, Options{Retention: o.Retention, now: clock.Now})
		},
		Wipe:    func(tb testing.TB) { wipe(tb, server, client) },
		Advance: clock.Advance,
		Slow:    true,
		MaxKeys: 60,
	}
}

// TestConformance runs the whole suite of lease stores.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, place)
}

// TestConformanceOnTheServersClock runs the checks in which time has a part, as
// clients see it. The time is the server's, in whole seconds, and the suite
// waits for it.
func TestConformanceOnTheServersClock(t *testing.T) {
	t.Parallel()
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness {
		server := testenv.S3(tb)
		client := dial(server)
		return storetest.Harness{
			Open: func(tb testing.TB, o storetest.Options) store.Store {
				return open(tb, server, client, Options{Retention: o.Retention})
			},
			Wipe:    func(tb testing.TB) { wipe(tb, server, client) },
			Grain:   2 * grain,
			Slow:    true,
			MaxKeys: 60,
		}
	})
}
