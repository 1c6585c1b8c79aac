package chaos

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/backend/s3"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// s3Resource is an object. site is the URL of its bucket: the endpoint with the
// bucket's name as the path.
type s3Resource struct {
	client      *awss3.Client
	g           *s3.Guard
	bucket, key string
}

func openObject(ctx context.Context, site, key string) (resource, error) {
	u, err := url.Parse(site)
	if err != nil {
		return nil, err
	}
	settings, err := config.LoadDefaultConfig(ctx, config.WithRegion("us-east-1"), config.WithRetryMaxAttempts(1))
	if err != nil {
		return nil, err
	}
	client := awss3.NewFromConfig(settings, func(o *awss3.Options) {
		o.BaseEndpoint, o.UsePathStyle = aws.String("http://"+u.Host), true
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	})
	p := &s3Resource{client: client, bucket: strings.Trim(u.Path, "/"), key: "resource/" + key}
	p.g, err = s3.OpenGuard(ctx, client, p.bucket, p.key, &s3.GuardOptions{SkipProbe: true})
	return p, err
}

func (p *s3Resource) guard() guard.Guard { return p.g }

func (p *s3Resource) read(ctx context.Context) (string, error) {
	r, err := p.g.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

func (p *s3Resource) write(ctx context.Context, stamp fence.Stamp, update string) error {
	_, err := p.g.Write(ctx, stamp, strings.NewReader(update))
	if errors.Is(err, s3.ErrCopyBehind) { // the write itself was committed
		return nil
	}
	return err
}

func (p *s3Resource) bare(ctx context.Context, update string) error {
	_, err := p.client.PutObject(ctx, &awss3.PutObjectInput{
		Bucket: &p.bucket, Key: &p.key, Body: strings.NewReader(update),
	})
	return err
}

func (p *s3Resource) applied(context.Context) ([]string, bool, error) { return nil, false, nil }

func (p *s3Resource) close() { _ = p.g.Close() }
