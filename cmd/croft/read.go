package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

func (a *app) readCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:     "read TARGET",
		GroupID: cli.GroupWrite,
		Short:   "Print the committed content of a guarded resource",
		Long: `Print the content of the newest admitted write to TARGET, a path or a URL. On a
network mount, and in S3, the plain file or object is a copy that may be older
for a moment. This command prints the committed content. On a local disk it is
the file itself.

With --out the content goes to a file, which appears when it is whole. With
--json as well, the facts go to standard output. Exit code 1 says that there is
no content.`,
		Example: `  croft read /shared/out/today.json
  croft read s3://bucket/out/today.json --out today.json
  croft read /shared/out/today.json --out today.json --json`,
		Args: cli.Takes("TARGET"),
		RunE: func(c *cobra.Command, args []string) error {
			if a.JSON && out == "" {
				return cli.Invalid("--json: the content itself goes to standard output; name a file for it with --out")
			}
			return a.read(c.Context(), args[0], out)
		},
	}
	c.Flags().StringVar(&out, "out", "", "write the content to this `file` instead of standard output")
	_ = c.MarkFlagFilename("out")
	return c
}

// readView is a content in JSON, without the content.
type readView struct {
	Target string `json:"target"`
	fence.Mark
	Bytes int64 `json:"bytes"`
}

func (a *app) read(ctx context.Context, target, out string) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	g, err := cli.OpenGuard(ctx, target)
	if err != nil {
		return err
	}
	defer g.Close()
	shown := store.Redact(g.Target())
	r, ok := g.(guard.Reader)
	if !ok {
		return cli.Invalid("target %s: its content is read with its own client; it is always the committed one there",
			shown)
	}
	content, err := r.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(a.Stderr, "croft: %s: there is no content\n", cli.Word(shown))
		return cli.ExitError(cli.ExitFailed)
	}
	if err != nil {
		return err
	}
	defer content.Close()
	if out == "" {
		_, err := io.Copy(a.Stdout, content)
		return err
	}
	n, err := copyToFile(out, content)
	if err != nil {
		return err
	}
	if a.JSON {
		a.Print(readView{Target: shown, Mark: content.Mark, Bytes: n})
		return nil
	}
	fmt.Fprintf(a.Stdout, "read %s: %d bytes under token %d\n", cli.Word(shown), n, content.Mark.Token)
	return nil
}

// copyToFile writes a file that appears when it is whole.
func copyToFile(path string, r io.Reader) (int64, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".croft-read-*")
	if err != nil {
		return 0, cli.Invalid("--out: %v; name a file in a directory that can be written", err)
	}
	defer os.Remove(f.Name())
	n, err := io.Copy(f, r)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return n, err
}
