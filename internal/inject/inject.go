// Package inject lets the proofs and tests of this module open backends, and
// followers of leases, on another file system or clock. Applications cannot do
// so: the packages keep these options to themselves. A package sets its
// function when it is imported.
package inject

import (
	"context"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
)

var (
	// Dir opens a directory store. fsy may be nil.
	Dir func(path string, retention time.Duration, fsy fsys.FS, now func() time.Time) (store.Store, error)
	// File opens the guard of a file.
	File func(path string, fsy fsys.FS) (guard.Artifact, error)
	// SQLite opens a store in a SQLite file. The store does not sweep by
	// itself.
	SQLite func(ctx context.Context, path string, lockWait time.Duration, now func() time.Time) (store.Store, error)
	// Follow follows the leases of a store (guard/current) on another clock.
	Follow func(from store.Store, maxAge, maxSilentAge, timeout time.Duration, clk clock.Clock) Follower
)

// Follower is a current.Follower.
type Follower interface {
	guard.Current
	Close()
}
