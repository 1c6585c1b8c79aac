// Package cas builds a lease store from anything that can compare and swap: a
// directory, an object store, a map.
//
// Package tenure decides what a request does to a record. A [Register] only has
// to swap one version of a record for the next, atomically.
//
// # Writing a register
//
// A backend implements the six methods of [Register], and gives the register to
// [New]. backend/mem is an example.
//
//   - A register keeps records whole and never looks inside, except for the
//     key. A [tenure.Record] reads and writes itself as JSON.
//   - The register chooses its versions: a revision of the server, a random
//     word, a number that never begins again. See [Version].
//   - The register need not check records, copy them, round its times or sort
//     its keys. The store does that.
//   - Two handles in two processes are two registers on one place. A mutex in
//     the register does not order them: the technology has to.
//   - The other interfaces of this package are optional, and so are
//     [store.Watcher] and [store.Examiner]. The store finds them on the
//     register.
//
// # Goroutines
//
// A request is carried out in a loop: load the record, decide, swap. If another
// request was faster, the loop begins again. No lock is held during it. The
// register's swap alone orders the requests of different stores and processes.
//
//   - Each [Store.Apply] starts up to [Options.Parallel] workers. A worker
//     takes one key of the batch at a time and carries out all its requests, in
//     their order.
//   - Apply returns when ctx ends, even if the register hangs. A worker may
//     then live on until the register returns. Its request may still take
//     effect, so its answer is unknown. The law makes it safe to send the
//     request again.
//   - Some grants start a sweep in the background. There is at most one such
//     sweep at a time. [Store.Close] ends it and waits for it.
//   - A sweep drops up to [Options.SweepParallel] records at once. It waits for
//     all drops before it returns.
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

// ErrConflict is the error of Swap and Drop if the register no longer holds the
// given version. Nothing was changed. The caller reads again.
var ErrConflict = errors.New("cas: the record has changed")

// ErrEclipsed is an ErrConflict after a lost reply: the Swap may have taken
// effect, and another Swap has changed the record since.
var ErrEclipsed = fmt.Errorf("the reply was lost, and since then: %w", ErrConflict)

// Version names one state of one key's record. The empty Version means that the
// key has no record.
//
// A version never comes back, not even after a Drop or after the place was
// wiped. Suppose that a store loads version 1, another one drops the record,
// and a third creates it anew as version 1. The first store's Swap would then
// overwrite a grant that it has not seen, and the key would have two holders.
// So a count per record that begins again at 1 is wrong. The suite storetest
// lets a store stand still between Load and Swap, and notices a version that
// comes back after a Drop. It does not try a version that comes back after a
// wipe.
type Version string

// Entry is the state of a key in a register at one moment.
type Entry struct {
	Record tenure.Record // zero if there is none
	// Version is the record's version. It is empty if there is no record, or
	// names the trace that Drop has left.
	Version Version
	// Now is the register's time, also if there is no record. The register
	// reads it together with the record or after it, never before. It is zero
	// if the record can be read and the time cannot. Requests then get the
	// error of Register.Now.
	Now time.Time
	// Latest is for a register with a coarse clock. The true time lies between
	// Now and Latest. Zero means that Now is exact.
	//
	// A change must be lawful at both times, and is dated with Latest. So a
	// deadline is never earlier than its holder believes, and it has certainly
	// passed once Now has reached it.
	Latest time.Time
}

// Register holds one record per key. All methods are safe for concurrent use.
type Register interface {
	// Load returns the entry of a key, and no error if the key has no record.
	// The entry should be the newest. An older one never leads to a second
	// grant, because Swap refuses its version. But it may refuse a request for
	// a reason that is over.
	Load(ctx context.Context, key string) (Entry, error)
	// Swap replaces the version old of the record's key with next. If old is
	// empty, it creates the record. It returns ErrConflict if another change
	// was faster and this one certainly changed nothing. It returns ErrEclipsed
	// if this change may have taken effect before the other. It returns a
	// store.FaultError if the change has certainly had no effect, and another
	// try now would fare no better. After any other error the change may have
	// taken effect, or may do so later.
	//
	// durable is false for renewals and reports. If the register loses one of
	// these in a crash, a lease ends early, and nothing worse happens.
	Swap(ctx context.Context, old Version, next tenure.Record, durable bool) error
	// Drop removes the version old of a key, or returns ErrConflict. A register
	// may keep a trace of the key for as long as it needs it, for example so
	// that no version comes back.
	Drop(ctx context.Context, key string, old Version) error
	// Scan yields the entries of all keys, in any order. It stops after the
	// first error. So if it cannot read one record, it yields the others first
	// and the error last. The store drops records inside the loop, so Scan
	// holds no lock while it yields.
	Scan(ctx context.Context) iter.Seq2[Entry, error]
	// Now is the register's own time.
	Now(ctx context.Context) (time.Time, error)
	// Close frees the register's resources.
	Close() error
}

// Settler is a register whose changes become visible before they are safe from
// a crash. The process that made a change may have died in between.
type Settler interface {
	// Settle makes a version safe that Load has returned. The store calls it
	// before it answers a request that finds itself already done.
	Settle(ctx context.Context, key string, v Version) error
}

// Announcer is a register that can announce operators' acts.
type Announcer interface {
	store.Announcer
	// Announce tells all listeners that an operator has acted on a key. It may
	// fail silently: the holder then learns of the act when it renews.
	Announce(ctx context.Context, key string)
}

// Recaller is a register that remembers its last write of a key. The store need
// not read the key before it changes it again.
type Recaller interface {
	// Recall returns the entry that this register's own last Swap of a key left
	// there, if it knows it. Another process may have changed the key since. So
	// the store uses the entry only for a change that Swap then confirms. It
	// never refuses a request because of it, but loads the key first.
	Recall(key string) (Entry, bool)
}

// PrefixScanner is a register that can scan some keys without reading the
// records of the others.
type PrefixScanner interface {
	// ScanPrefix yields at least the records whose key begins with prefix.
	ScanPrefix(ctx context.Context, prefix string) iter.Seq2[Entry, error]
}

// OldScanner is a register that can leave recently written records out of a
// scan. It is for registers where each read costs money.
type OldScanner interface {
	// ScanOld yields at least the records that have not been written since
	// before.
	ScanOld(ctx context.Context, before time.Time) iter.Seq2[Entry, error]
}
