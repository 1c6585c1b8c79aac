package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

func TestASilentInputDoesNotOutlastTheUsersPatience(t *testing.T) {
	silent, _ := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	r := readUntil(ctx, io.MultiReader(strings.NewReader("begun"), silent))
	got := make([]byte, 5)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "begun" {
		t.Fatalf("read %q, %v", got, err)
	}
	interrupt()
	if _, err := r.Read(got); !errors.Is(err, context.Canceled) {
		t.Errorf("after the interrupt: %v, want %v", err, context.Canceled)
	}
}

func TestAnInputIsReadToItsEnd(t *testing.T) {
	got, err := io.ReadAll(readUntil(t.Context(), strings.NewReader("all of it")))
	if err != nil || string(got) != "all of it" {
		t.Errorf("read %q, %v", got, err)
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(readUntil(t.Context(), io.MultiReader(strings.NewReader("half"), failing{broken}))); !errors.Is(err, broken) {
		t.Errorf("a broken input: %v, want %v", err, broken)
	}
}

// failing is an input that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

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
