package s3_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/s3"
)

// A job runs on several machines that share only a bucket. One of them does the
// work. Its writes are refused once another machine has taken over.
func Example() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := awss3.NewFromConfig(cfg)
	st, err := s3.Open(ctx, client, "my-bucket", &s3.Options{Prefix: "croft"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	report, err := s3.OpenGuard(ctx, client, "my-bucket", "out/report.json", nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	c := croft.New(st, nil)
	defer c.Close()
	lease, err := c.Acquire(ctx, "jobs/report", nil)
	if err != nil {
		fmt.Println(err) // not our turn
		return
	}
	defer func() { _ = lease.Release(ctx) }()
	if _, err := report.Write(lease.Context(), lease.Stamp(), strings.NewReader(`{"rows": 17}`)); err != nil {
		fmt.Println(err)
		return
	}
	reader, err := report.Open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	_, _ = io.Copy(os.Stdout, reader)
}
