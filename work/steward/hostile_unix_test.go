//go:build unix

package steward

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestNothingOfACommandOutlivesItsTime: this covers the members of a pipeline,
// and processes in the background. Each keeps a named pipe open for as long as
// it lives.
func TestNothingOfACommandOutlivesItsTime(t *testing.T) {
	for name, script := range map[string]string{
		"a pipeline":        `{ echo up >&3; sleep 1000; echo acted; } 3>"$0" | cat`,
		"in the background": `{ echo up; sleep 1000; } >"$0" & wait`,
		"left behind":       `{ echo up; sleep 1000; } >"$0" & read -r line <"$0.go"`,
	} {
		t.Run(name, func(t *testing.T) {
			living := filepath.Join(t.TempDir(), "living")
			for _, path := range []string{living, living + ".go"} {
				if err := syscall.Mkfifo(path, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r, err := os.OpenFile(living, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- Command{Args: []string{"sh", "-c", script, living}}.Deliver(ctx, effect(1)) }()
			testenv.Eventually(t, "the command is up", func() error {
				_, err := io.ReadFull(r, make([]byte, 3))
				return err
			})
			if name == "left behind" { // the command itself ends with success
				w, err := os.OpenFile(living+".go", os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(w, "\n")
				_ = w.Close()
			} else {
				cancel()
			}
			if err := <-done; (err == nil) != (name == "left behind") || kind(err) == notDelivered {
				t.Errorf("the delivery: %v", err)
			}
			_ = r.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("something of the command lives on after Deliver has returned: %v", err)
			}
		})
	}
}
