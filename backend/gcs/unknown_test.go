package gcs

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/croft-dev/croft/store"
)

// TestACallWithoutAnAnswerIsUnknown: every call of a guard says so.
func TestACallWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	g := openGuard(t, "bucket", "out.json", GuardOptions{Connection: at("http://127.0.0.1:1"), SkipProbe: true})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, call := range map[string]func() error{
		"Write":   func() error { _, err := g.Write(ended, stamp(10, 1, 0), strings.NewReader("x")); return err },
		"Raise":   func() error { _, err := g.Raise(ended, stamp(10, 1, 0)); return err },
		"Rekey":   func() error { _, err := g.Rekey(ended, "other", "ann", "why"); return err },
		"Mark":    func() error { _, err := g.Mark(ended); return err },
		"Rekeyed": func() error { _, err := g.Rekeyed(ended); return err },
	} {
		if err := call(); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
