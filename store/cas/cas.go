// Package cas builds a lease store from any place that can compare and swap: a directory, an object store, a map.
//
// The decisions are those of package tenure; a [Register] only has to swap one version of a record for the next, atomically.
package cas

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrConflict is what Swap returns when the register no longer held the version it was given: nothing was changed, read again.
var ErrConflict = errors.New("cas: the record has changed")

// ErrEclipsed is an ErrConflict of a Swap that may have taken effect before another's did: its reply was lost.
var ErrEclipsed = fmt.Errorf("the reply was lost, and since then: %w", ErrConflict)

// Version names one state of one key's record. The empty Version is a key that has no record.
type Version string

// Entry is what a register holds of a key at one moment.
type Entry struct {
	Record  tenure.Record // zero if there is none
	Version Version
	// Now is the register's own time, read together with the record or after it, never before.
	Now time.Time
	// Latest is how late it may have been in truth, for a register whose clock is coarse: Now is then the earliest it may have been. What the law
	// allows must be allowed at both, and is dated with Latest: a deadline lies no earlier than its holder believes, and has passed for certain
	// when it has at Now. Zero means that Now is exact.
	Latest time.Time
}

// Register holds one record per key. All methods are safe for concurrent use.
type Register interface {
	// Load returns what is held of a key.
	Load(ctx context.Context, key string) (Entry, error)
	// Swap replaces the version old of the record's key with next, or creates it if old is empty. It returns ErrConflict if it certainly changed
	// nothing because another was faster, and ErrEclipsed if it may have taken effect before. Any other error leaves open whether it took effect, or yet will. durable is false for renewals and
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

// Settler is a register whose changes can be seen before a crash can no longer take them back: their maker may have died between the two.
type Settler interface {
	// Settle makes sure of a version that Load has returned. It is called before a request is answered that found itself done already.
	Settle(ctx context.Context, key string, v Version) error
}

// Announcer is a register that can tell of operators' acts.
type Announcer interface {
	store.Announcer
	// Announce tells everybody who listens that an operator has acted on a key.
	// It is a kindness: if it fails, the holder learns of the act by renewing.
	Announce(ctx context.Context, key string)
}

// Recaller is a register that remembers what it wrote last, and so saves reading it before the next change of the same key.
type Recaller interface {
	// Recall returns the entry that this register's own last Swap of a key left there, if it knows. It may have been changed by another since: only a
	// change that is then swapped for its version counts, and a refusal is decided again on what Load returns.
	Recall(key string) (Entry, bool)
}

// PrefixScanner is a register that can leave the records of other keys out of a scan without reading them.
type PrefixScanner interface {
	// ScanPrefix yields at least the records of the keys that begin with prefix.
	ScanPrefix(ctx context.Context, prefix string) iter.Seq2[Entry, error]
}

// OldScanner is a register that can leave out of a scan what has been written lately, where reading every record costs money.
type OldScanner interface {
	// ScanOld yields at least what has not been written since before.
	ScanOld(ctx context.Context, before time.Time) iter.Seq2[Entry, error]
}
