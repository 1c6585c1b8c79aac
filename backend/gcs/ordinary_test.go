package gcs

import (
	"strings"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"
)

// ordinary returns the bucket as programs see it that do not know of guards:
// through the client library that most programs use.
func (b *bucket) ordinary(tb testing.TB) *storage.BucketHandle {
	tb.Helper()
	endpoint := strings.TrimSuffix(b.address, "/"+b.name)
	c, err := storage.NewClient(tb.Context(), storage.WithJSONReads(), option.WithoutAuthentication(), option.WithEndpoint(endpoint+"/storage/v1/"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c.Bucket(b.name)
}
