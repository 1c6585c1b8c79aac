package s3

import (
	"context"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/croft-dev/croft/guard"
)

var _ guard.Host = (*Store)(nil)

// Guard opens the guard of an object in the store's own bucket: see
// [guard.Host].
func (s *Store) Guard(ctx context.Context, target string) (guard.Guard, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "s3" {
		return nil, guard.ErrElsewhere
	}
	a, err := parse(u, "target", "copy")
	if err != nil || a.bucket != s.reg.name || a.endpoint != aws.ToString(s.reg.client.Options().BaseEndpoint) {
		return nil, guard.ErrElsewhere
	}
	return OpenGuard(ctx, s.reg.client, a.bucket, a.path,
		&GuardOptions{NoCopy: u.Query().Get("copy") == "off", SkipProbe: true})
}
