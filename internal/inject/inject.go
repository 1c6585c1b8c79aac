// Package inject lets the proofs of this module open backends on another file
// system or clock. Applications cannot do so: the backends keep these options
// to themselves. A backend sets its function when it is imported.
package inject

import (
	"context"
	"time"

	"github.com/croft-dev/croft/guard"
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
)
