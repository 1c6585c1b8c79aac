//go:build linux

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// TestAClosedOutputStartsNoCommand: a write that gives up may leave a Read
// behind. If Close comes first, nothing of the command must run afterwards.
func TestAClosedOutputStartsNoCommand(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	o := &commandOutput{
		ctx: t.Context(), app: &app{&cli.App{Stdin: os.Stdin, Stderr: os.Stderr}}, command: []string{"touch", started},
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(o); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a Read after Close: %v, want %v", err, os.ErrClosed)
	}
	if _, err := os.Stat(started); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the command has run: %v", err)
	}
}

// TestCloseFindsACommandThatJustStarts: Close comes at any moment of the first
// Read. When both have returned, nothing of the command is alive.
func TestCloseFindsACommandThatJustStarts(t *testing.T) {
	for range 5 {
		o := &commandOutput{
			ctx: t.Context(), app: &app{&cli.App{Stdin: os.Stdin, Stderr: os.Stderr}}, command: []string{"sleep", "1000"},
		}
		read := make(chan error)
		go func() {
			_, err := o.Read(make([]byte, 1))
			read <- err
		}()
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err == nil {
			t.Error("the Read succeeded")
		}
		if o.child != nil && len(o.child.Alive()) > 0 {
			t.Errorf("alive: %v", o.child.Alive())
		}
	}
}
