package store

import (
	"context"
	"net/url"

	"github.com/croft-dev/croft/internal/registry"
)

// Opener opens the store a URL names.
type Opener = func(ctx context.Context, u *url.URL) (Store, error)

var stores = registry.New[Store]("store", "dir")

// Register makes a scheme known to Open. Backends call it from init; a scheme registered twice panics. What has no
// scheme is the path of a directory and goes to "dir".
func Register(scheme string, open Opener) { stores.Register(scheme, open) }

// Schemes lists the schemes that Open knows, sorted.
func Schemes() []string { return stores.Schemes() }

// Open opens the store that a URL, or the plain path of a directory, names.
func Open(ctx context.Context, raw string) (Store, error) { return stores.Open(ctx, raw) }

// Redact is a store's or guard's URL fit for people's eyes: without its password and other secrets.
func Redact(raw string) string { return registry.Redact(raw) }
