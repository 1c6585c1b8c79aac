package work

import (
	"context"
	"net/url"

	"github.com/croft-dev/croft/internal/registry"
)

// Opener opens the ledger that a URL names.
type Opener = func(ctx context.Context, u *url.URL) (Ledger, error)

var ledgers = registry.New[Ledger]("ledger", "dir")

// Register makes a URL scheme known to Open. Backends call it from init, with
// the scheme of their store, so that one URL names both. It panics if the
// scheme is registered already.
func Register(scheme string, open Opener) { ledgers.Register(scheme, open) }

// Schemes lists the schemes that Open knows, sorted.
func Schemes() []string { return ledgers.Schemes() }

// Open opens the ledger that a URL names, such as "sqlite:///path/to/file.db".
// The program must import the backend's package.
func Open(ctx context.Context, raw string) (Ledger, error) { return ledgers.Open(ctx, raw) }
