package store

import (
	"context"
	"net/url"

	"github.com/croft-dev/croft/internal/registry"
)

// Opener opens the store that a URL names. The URL has the form "scheme://…":
// Open refuses one without the two slashes. The opener's error matches
// fence.ErrInvalid if the URL is wrong, and the command line then reports bad
// usage. Any other error means that the store could not be reached.
type Opener = func(ctx context.Context, u *url.URL) (Store, error)

var stores = registry.New[Store]("store", "dir")

// Register makes a scheme known to Open. Backends call it from init. It panics
// if the scheme is already registered. A name without a scheme is the path of a
// directory, and goes to the opener of "dir".
func Register(scheme string, open Opener) { stores.Register(scheme, open) }

// Schemes lists the schemes that Open knows, sorted.
func Schemes() []string { return stores.Schemes() }

// Open opens the store that raw names: a URL, or the plain path of a directory.
func Open(ctx context.Context, raw string) (Store, error) { return stores.Open(ctx, raw) }

// Redact returns the URL of a store or guard without its password and other
// secrets, so that it can be shown to people.
func Redact(raw string) string { return registry.Redact(raw) }
