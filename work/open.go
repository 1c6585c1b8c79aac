package work

import (
	"context"
	"net/url"

	"github.com/croft-dev/croft/internal/registry"
)

// Opener opens the ledger a URL names.
type Opener = func(ctx context.Context, u *url.URL) (Ledger, error)

var ledgers = registry.New[Ledger]("ledger", "dir")

// Register makes a scheme known to Open. Backends call it from init, with the scheme of their store: one URL names both. A scheme registered twice panics.
func Register(scheme string, open Opener) { ledgers.Register(scheme, open) }

// Schemes lists the schemes that Open knows, sorted.
func Schemes() []string { return ledgers.Schemes() }

// Open opens the ledger that a URL names.
func Open(ctx context.Context, raw string) (Ledger, error) { return ledgers.Open(ctx, raw) }
