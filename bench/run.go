package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// benchRun compares a command under a lease with the same command alone.
func benchRun(ctx context.Context, b *bench) error {
	croft, _, err := b.buildCroft(ctx)
	if err != nil {
		return err
	}
	st, err := b.folder("run")
	if err != nil {
		return err
	}
	repeat := func(name string, args ...string) func(context.Context, int) error {
		return func(ctx context.Context, n int) error {
			for range n {
				if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
			}
			return nil
		}
	}
	return b.compare(ctx, func(t *table, r []result) {
		t.Notes = append(t.Notes, "overhead of run over a bare exec: "+short(r[2].wall-r[0].wall))
	},
		contender{"/bin/true", 20, repeat("/bin/true")},
		contender{"croft version", 20, repeat(croft, "version")},
		contender{"croft run -- /bin/true", 20, repeat(croft, "--store", st, "run", "bench", "--", "/bin/true")},
	)
}

// buildCroft builds the command. It returns its path, and the folder of Croft's
// sources.
func (b *bench) buildCroft(ctx context.Context) (program, root string, err error) {
	bin, err := b.folder("bin")
	if err != nil {
		return "", "", err
	}
	program = filepath.Join(bin, "croft")
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/croft-dev/croft").Output()
	if err != nil {
		return "", "", fmt.Errorf("finding croft's module: %w; run this in the bench folder", err)
	}
	root = strings.TrimSpace(string(out))
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/croft")
	build.Dir, build.Stderr = root, os.Stderr
	build.Env = append(os.Environ(), "GOWORK=") // the command is a module of Croft's go.work, and this one is not
	if err := build.Run(); err != nil {
		return "", "", fmt.Errorf("building croft: %w", err)
	}
	return program, root, nil
}
