package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// Marks is where a proxy keeps the marks of its resources.
type Marks struct {
	Open  func(ctx context.Context, resource string) (guard.Guard, error)
	Shown string // the target as it may be shown
}

// Served opens the second mark of a resource, in which a proxy records that it
// has served the resource.
func (m Marks) Served(ctx context.Context, resource string) (guard.Guard, error) {
	return m.Open(ctx, resource+"/.") // no resource has this name
}

// MarksUsage describes the flag --marks.
const MarksUsage = "where marks are kept: a `target` with {resource} in it " +
	"(default: beside the leases, where the store has room)"

// OpenMarks decides where marks are kept, and opens one there. So a bad target
// is an error now, and not at the first request. The target is the value of
// --marks.
func (a *App) OpenMarks(ctx context.Context, target string) (Marks, error) {
	template, err := WithPassword(target)
	if err != nil {
		return Marks{}, err
	}
	if template == "" {
		name, _, err := a.StoreName()
		if err != nil {
			return Marks{}, err
		}
		if template, err = defaultMarks(name); err != nil {
			return Marks{}, err
		}
	}
	open, err := httpfence.MarksAt(template)
	if err != nil {
		return Marks{}, fmt.Errorf("--marks: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, GuardTimeout)
	defer cancel()
	g, err := open(ctx, "probe")
	if err != nil {
		return Marks{}, fmt.Errorf("--marks: %w", err)
	}
	defer g.Close()
	if _, err := g.Mark(ctx); err != nil {
		return Marks{}, fmt.Errorf("--marks: %w", store.Unknown(err))
	}
	return Marks{Open: open, Shown: store.Redact(template)}, nil
}

// defaultMarks is the target for marks beside the leases of a store.
func defaultMarks(name string) (string, error) {
	scheme, path, _ := strings.Cut(name, "://")
	switch {
	case !IsURL(name):
		path = name
	case scheme == "dir" && !strings.ContainsAny(path, "?#%"):
	// At file, s3 and gs a mark would be a file or an object, and every write
	// would cost a request or more.
	case slices.Contains(guard.Schemes(), scheme) && !slices.Contains([]string{"file", "s3", "gs"}, scheme):
		base, _, _ := strings.Cut(name, "#")
		return base + "#croft-proxy/{resource}", nil
	default:
		return "", Invalid("--marks: the store %s has no room for marks; say where to keep them, for example in "+
			"--marks '/var/lib/croft/marks/{resource}'", store.Redact(name))
	}
	path = strings.TrimRight(path, "/") + "-marks"
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", Invalid("--marks: %v; say where to keep them", err)
	}
	return path + "/{resource}", nil
}
