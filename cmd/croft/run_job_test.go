package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/tenure"
)

// TestAnInterruptBeforeTheCommandStartsGivesTheKeyBack: between the grant and
// the start only croft itself gets the signal.
func TestAnInterruptBeforeTheCommandStartsGivesTheKeyBack(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(cli.EnvStore, filepath.Join(dir, "store"))
	t.Setenv("TMPDIR", dir)
	var said bytes.Buffer
	a := &app{&cli.App{Stdout: &cli.Sink{W: &said}, Stderr: &said}}
	a.rootCommand() // sets the flags to their defaults
	client, end, err := a.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	lease, err := client.Acquire(t.Context(), "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	status, err := newRunStatus(filepath.Join(dir, "status"), "job")
	if err != nil {
		t.Fatal(err)
	}
	j := &job{app: a, held: lease, status: status}
	asked, interrupt := context.WithCancel(t.Context())
	interrupt()
	err = j.start(asked, []string{"touch", filepath.Join(dir, "ran")})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("started: %v, want it not to", err)
	}
	if err := j.notStarted(t.Context(), err); !errors.Is(err, cli.ExitError(cli.ExitInterrupted)) {
		t.Errorf("%v, want exit code %d", err, cli.ExitInterrupted)
	}
	if rec, err := client.Store().Get(t.Context(), "job"); err != nil || rec.State != tenure.Free || !errors.Is(lease.Err(), croft.ErrLost) {
		t.Errorf("the key is %s, %v", rec.State, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "status")); err != nil || !strings.Contains(string(text), `"verdict":"not_started","exit":130`) {
		t.Errorf("the status file says %s, %v", text, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "croft-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
}
