package s3

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// largestCopy is the largest copy in one request, and the size of the pieces of
// larger ones. Services allow up to 5 GiB, but some answer only when they are
// done, and the client does not wait that long.
const largestCopy = 1 << 30

// copyTo copies a payload within the bucket. The content does not pass through
// this process. The error is the SDK's.
func (g *Guard) copyTo(ctx context.Context, content *payload, name string) error {
	source := g.name + "/" + escaped(content.Name)
	if content.Size <= g.largestCopy {
		_, err := g.client.CopyObject(ctx, &awss3.CopyObjectInput{Bucket: &g.name, Key: &name, CopySource: &source})
		return err
	}
	// A copy in pieces does not copy the content type and the metadata.
	was, err := g.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &g.name, Key: &content.Name})
	if err != nil {
		return err
	}
	begun, err := g.client.CreateMultipartUpload(ctx, &awss3.CreateMultipartUploadInput{
		Bucket: &g.name, Key: &name, ContentType: was.ContentType, Metadata: was.Metadata,
	})
	if err != nil {
		return err
	}
	id := aws.ToString(begun.UploadId)
	if err := g.copyParts(ctx, content, source, name, id); err != nil {
		abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = g.client.AbortMultipartUpload(abort, &awss3.AbortMultipartUploadInput{
			Bucket: &g.name, Key: &name, UploadId: &id,
		})
		return err
	}
	return nil
}

func (g *Guard) copyParts(ctx context.Context, content *payload, source, name, id string) error {
	var done []types.CompletedPart
	for from := int64(0); from < content.Size; from += g.largestCopy {
		number := aws.Int32(int32(len(done) + 1))
		span := fmt.Sprintf("bytes=%d-%d", from, min(from+g.largestCopy, content.Size)-1)
		out, err := g.client.UploadPartCopy(ctx, &awss3.UploadPartCopyInput{
			Bucket: &g.name, Key: &name, UploadId: &id, PartNumber: number, CopySource: &source, CopySourceRange: &span,
		})
		if err != nil {
			return err
		}
		done = append(done, types.CompletedPart{ETag: out.CopyPartResult.ETag, PartNumber: number})
	}
	return g.finish(ctx, name, id, done)
}

// finish makes an object of its parts.
func (b *bucket) finish(ctx context.Context, name, id string, parts []types.CompletedPart) error {
	slices.SortFunc(parts, func(a, b types.CompletedPart) int { return cmp.Compare(*a.PartNumber, *b.PartNumber) })
	_, err := b.client.CompleteMultipartUpload(ctx, &awss3.CompleteMultipartUploadInput{
		Bucket: &b.name, Key: &name, UploadId: &id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	return err
}

// escaped writes a name for a header, where a plus sign would be read as a
// space.
func escaped(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(part), "+", "%2B")
	}
	return strings.Join(parts, "/")
}
