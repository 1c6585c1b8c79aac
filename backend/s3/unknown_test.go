package s3

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/store"
)

// TestACallWithoutAnAnswerIsUnknown: every call of a guard says so.
func TestACallWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	client := awss3.New(awss3.Options{Region: "here", BaseEndpoint: aws.String("http://127.0.0.1:1")})
	g, err := OpenGuard(t.Context(), client, "bucket", "out.json", &GuardOptions{SkipProbe: true})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, call := range map[string]func() error{
		"Write":   func() error { _, err := g.Write(ended, stamp(10, 1, 0), strings.NewReader("x")); return err },
		"Raise":   func() error { _, err := g.Raise(ended, stamp(10, 1, 0)); return err },
		"Rekey":   func() error { _, err := g.Rekey(ended, "other", "ann", "why"); return err },
		"Mark":    func() error { _, err := g.Mark(ended); return err },
		"Rekeyed": func() error { _, err := g.Rekeyed(ended); return err },
		"Refresh": func() error { return g.Refresh(ended) },
	} {
		if err := call(); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
