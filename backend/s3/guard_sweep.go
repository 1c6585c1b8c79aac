package s3

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
)

// Sweep removes what dead writers have left behind, when it is a day old:
// unfinished uploads, and payloads that no manifest names. It returns how many.
// Writes sweep by themselves now and then.
//
// A writer that was stopped for longer than a day cannot commit a removed
// payload. Its manifest has changed since, and it checks the age of its upload.
func (g *Guard) Sweep(ctx context.Context) (removed int, err error) {
	removed, err = g.sweepUploads(ctx)
	if err != nil {
		return removed, unknown(err)
	}
	var old []string
	for page, err := range g.list(ctx, g.key+payloadFolder) {
		if err != nil {
			return removed, unknown(err)
		}
		for _, o := range page {
			if o.date.Sub(o.modified) > g.leftoverAge {
				old = append(old, o.name)
			}
		}
	}
	if len(old) == 0 {
		return removed, nil
	}
	current, err := g.touch(ctx, old)
	if err != nil {
		return removed, unknown(err)
	}
	for _, name := range old {
		if current.Payload != nil && current.Payload.Name == name {
			continue
		}
		if _, err := g.client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &g.name, Key: &name}); err != nil {
			return removed, unknown(g.explain(err))
		}
		removed++
	}
	return removed, nil
}

// touch replaces the manifest by an equal one with a new nonce. So writers that
// have read it must read it again. It does nothing if only the present content
// is old.
func (g *Guard) touch(ctx context.Context, old []string) (seen, error) {
	for {
		if ctx.Err() != nil {
			return seen{}, context.Cause(ctx)
		}
		now, err := g.read(ctx)
		if err != nil {
			return seen{}, err
		}
		if len(old) == 1 && now.Payload != nil && now.Payload.Name == old[0] {
			return now, nil
		}
		touched, err := g.replace(ctx, now, now.manifest)
		if err == nil {
			return touched, nil
		}
		if !errors.Is(err, errOvertaken) {
			return seen{}, err
		}
	}
}

// sweepUploads aborts multipart uploads that nobody will finish.
func (g *Guard) sweepUploads(ctx context.Context) (removed int, err error) {
	now, err := g.now(ctx)
	if err != nil {
		return 0, err
	}
	pages := awss3.NewListMultipartUploadsPaginator(g.client,
		&awss3.ListMultipartUploadsInput{Bucket: &g.name, Prefix: &g.key})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return removed, g.explain(err)
		}
		for _, u := range page.Uploads {
			// Only uploads of payloads, and of large plain copies. Another
			// object's name may begin with the same prefix.
			name := aws.ToString(u.Key)
			if name != g.key && !strings.HasPrefix(name, g.key+payloadFolder) ||
				now.Sub(aws.ToTime(u.Initiated)) <= g.leftoverAge {
				continue
			}
			_, err := g.client.AbortMultipartUpload(ctx, &awss3.AbortMultipartUploadInput{
				Bucket: &g.name, Key: u.Key, UploadId: u.UploadId,
			})
			if status, code := answerOf(err); err != nil && code != "NoSuchUpload" && status != 404 {
				return removed, g.explain(err)
			}
			removed++
		}
	}
	return removed, nil
}
