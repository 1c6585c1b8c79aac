package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// TestOutReplacesNoLargeFile: a file that is larger than any lease is something
// else, whatever it begins with. Croft reads no more of it than a lease has.
func TestOutReplacesNoLargeFile(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(path string) error{
		"a huge file": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40) // it takes no space on the disk
		},
		"text after blanks": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat(" ", cli.MaxLease)+"notes"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "notes")
			if err := write(path); err != nil {
				t.Fatal(err)
			}
			file, err := newLeaseFile(path, false)
			if err != nil {
				t.Fatal(err)
			}
			defer file.remove()
			if err := file.check(t.Context(), mem.New(nil), "jobs/a"); !errors.As(err, new(*cli.UsageError)) {
				t.Errorf("croft would replace it: %v", err)
			}
		})
	}
}
