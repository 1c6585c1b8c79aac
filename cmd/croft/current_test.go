package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// TestSlowContentIsCheckedAtItsEnd: Read returns the refusal in place of
// io.EOF.
func TestSlowContentIsCheckedAtItsEnd(t *testing.T) {
	t.Parallel()
	refusal := errors.New("replaced")
	clk := clock.NewManual(0)
	read := func(took time.Duration) error {
		r := &checkedAtEnd{strings.NewReader("content"), clk, clk.Now(), func() error { return refusal }}
		clk.Advance(took)
		_, err := io.ReadAll(r)
		return err
	}
	if err := read(lateAfter); err != nil {
		t.Errorf("quick content: %v", err)
	}
	if err := read(lateAfter + 1); !errors.Is(err, refusal) {
		t.Errorf("slow content: %v", err)
	}
}
