// Package cas builds a lease store from any place that can compare and swap: a directory, an object store, a map.
//
// The decisions are those of package tenure; a [Register] only has to swap one version of a record for the next, atomically.
package cas

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// ErrConflict is what Swap returns when the register no longer held the version it was given: nothing was changed, read again.
var ErrConflict = errors.New("cas: the record has changed")

// Version names one state of one key's record. The empty Version is a key that has no record.
type Version string

// Entry is what a register holds of a key at one moment.
type Entry struct {
	Record  tenure.Record // zero if there is none
	Version Version
	// Now is the register's own time, read together with the record or after it, never before.
	Now time.Time
}

// Register holds one record per key. All methods are safe for concurrent use.
type Register interface {
	// Load returns what is held of a key.
	Load(ctx context.Context, key string) (Entry, error)
	// Swap replaces the version old of the record's key with next, or creates it if old is empty. It returns ErrConflict if it certainly changed
	// nothing because another was faster. Any other error leaves open whether it took effect. durable is false for renewals and
	// reports: losing one in a crash of the register ends a lease early and does no harm.
	Swap(ctx context.Context, old Version, next tenure.Record, durable bool) error
	// Drop removes the version old of a key, or returns ErrConflict. A register may keep a trace of it for as long as it needs.
	Drop(ctx context.Context, key string, old Version) error
	// Scan yields what is held of every key, in any order. It stops after the first error.
	Scan(ctx context.Context) iter.Seq2[Entry, error]
	// Now is the register's own time.
	Now(ctx context.Context) (time.Time, error)
	// Close lets go of what the register holds open.
	Close() error
}
