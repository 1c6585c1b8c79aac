package proxycmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// openMarks decides where marks are kept, and opens one there. So a bad target
// is an error now, and not at the first request. It returns the target as it
// may be shown.
func (a *app) openMarks(ctx context.Context, f *proxyFlags) (shown string, err error) {
	template, err := cli.WithPassword(f.marks)
	if err != nil {
		return "", err
	}
	if template == "" {
		name, _, err := a.StoreName()
		if err != nil {
			return "", err
		}
		if template, err = defaultMarks(name); err != nil {
			return "", err
		}
	}
	if f.o.Marks, err = httpfence.MarksAt(template); err != nil {
		return "", fmt.Errorf("--marks: %w", err)
	}
	f.o.Served = func(ctx context.Context, resource string) (guard.Guard, error) {
		return f.o.Marks(ctx, resource+"/.") // no resource has this name
	}
	ctx, cancel := context.WithTimeout(ctx, cli.GuardTimeout)
	defer cancel()
	g, err := f.o.Marks(ctx, "probe")
	if err != nil {
		return "", fmt.Errorf("--marks: %w", err)
	}
	defer g.Close()
	if _, err := g.Mark(ctx); err != nil {
		return "", fmt.Errorf("--marks: %w", store.Unknown(err))
	}
	return store.Redact(template), nil
}

// defaultMarks is the target for marks beside the leases of a store.
func defaultMarks(name string) (string, error) {
	scheme, path, _ := strings.Cut(name, "://")
	switch {
	case !cli.IsURL(name):
		path = name
	case scheme == "dir" && !strings.ContainsAny(path, "?#%"):
	// At file, s3 and gs a mark would be a file or an object, and every write
	// would cost a request or more.
	case slices.Contains(guard.Schemes(), scheme) && !slices.Contains([]string{"file", "s3", "gs"}, scheme):
		base, _, _ := strings.Cut(name, "#")
		return base + "#croft-proxy/{resource}", nil
	default:
		return "", cli.Invalid("--marks: the store %s has no room for marks; say where to keep them, for example in "+
			"--marks '/var/lib/croft/marks/{resource}'", store.Redact(name))
	}
	path = strings.TrimRight(path, "/") + "-marks"
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", cli.Invalid("--marks: %v; say where to keep them", err)
	}
	return path + "/{resource}", nil
}

// bytesFlag is a number of bytes.
type bytesFlag int64

// Set reads the flag.
func (b *bytesFlag) Set(text string) error {
	number, unit := text, int64(1)
	for suffix, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, found := strings.CutSuffix(text, suffix); found {
			number, unit = n, size
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > 1<<40/unit {
		return fmt.Errorf("not a number of bytes; write it as in 65536, 512KiB or 64MiB, at most 1024GiB")
	}
	*b = bytesFlag(n * unit)
	return nil
}

func (b *bytesFlag) String() string {
	for _, u := range []struct {
		size   bytesFlag
		suffix string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if *b >= u.size && *b%u.size == 0 {
			return strconv.FormatInt(int64(*b/u.size), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type names the flag's value in help texts.
func (b *bytesFlag) Type() string { return "bytes" }
