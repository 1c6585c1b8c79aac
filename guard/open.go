package guard

import (
	"context"
	"net/url"

	"github.com/croft-dev/croft/internal/registry"
)

// Opener opens the guard that a URL names.
type Opener = func(ctx context.Context, u *url.URL) (Guard, error)

// files is the scheme of targets that are plain paths.
const files = "file"

var guards = registry.New[Guard]("target", files)

// Register makes a scheme known to Open. Backends call it from init. It panics
// if the scheme is already registered. A target without a scheme is the path of
// a file, and goes to the opener of "file".
func Register(scheme string, open Opener) { guards.Register(scheme, open) }

// Schemes lists the schemes that Open knows, sorted.
func Schemes() []string { return guards.Schemes() }

// Open opens the guard that target names: a URL, or the plain path of a file.
func Open(ctx context.Context, target string) (Guard, error) { return guards.Open(ctx, target) }

// IsFile reports whether a target names a file: by its path, or by a URL.
func IsFile(target string) bool {
	u, err := guards.Parse(target)
	return err == nil && u.Scheme == files
}
