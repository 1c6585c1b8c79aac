package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	codes "modernc.org/sqlite/lib"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// ErrClosed is matched by the errors of a store or ledger that is closed.
var ErrClosed = errors.New("the store is closed; open it again")

// ErrBusy is matched if another connection, mostly of another process, did not
// end its transaction in time.
var ErrBusy = errors.New("the database is locked")

// code returns SQLite's extended error code, or 0 if the error has none.
func code(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return 0
}

// primary returns SQLite's primary error code, or 0.
func primary(err error) int { return code(err) & 0xff }

// isBusy reports whether another connection has the lock. Waiting may help.
func isBusy(err error) bool {
	p := primary(err)
	return p == codes.SQLITE_BUSY || p == codes.SQLITE_LOCKED
}

// lacksTable reports whether a table is missing. SQLite has no error code for
// it, so the text decides.
func lacksTable(err error) bool {
	return primary(err) == codes.SQLITE_ERROR && err != nil && strings.Contains(err.Error(), "no such table")
}

// explain adds the file, the meaning and advice to an error. If ctx has ended,
// it returns that instead.
func (b *base) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return wait.Ended(ctx)
	case errors.Is(err, ErrBusy), errors.Is(err, ErrDamaged), errors.Is(err, clerk.ErrDamaged),
		errors.Is(err, ErrClosed), errors.As(err, new(explained)):
		return err
	}
	if code(err) != 0 && !isBusy(err) && b.info != nil && b.moved() {
		// SQLite reports a moved file in many ways: as an I/O error, as a file
		// that cannot be opened, or as missing tables.
		return fmt.Errorf("store %s: %w; the file was moved or removed while it was open; put it back, or ask again "+
			"to have it made anew", b.name(), err)
	}
	advice := "see whether the file can be read and written, and whether `sqlite3 FILE 'PRAGMA integrity_check'` " +
		"finds it in order"
	switch primary(err) {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fmt.Errorf("store %s: %w: %s: %w", b.name(), ErrBusy, b.holder(), err)
	case codes.SQLITE_FULL:
		advice = "the disk is full or a quota used up: free some space; every lease is as it was"
	case codes.SQLITE_READONLY:
		advice = "it cannot be written: give this user the permission to write the file, the files FILE-wal and " +
			"FILE-shm beside it, and its folder; or mount it writable"
		if code(err) == codes.SQLITE_READONLY_DBMOVED {
			advice = "the file was moved or removed while it was open; put it back, or ask again to have it made anew"
		}
	case codes.SQLITE_CORRUPT:
		advice = "the file is damaged: stop all who use it, look at the disk, and bring it back with " +
			"`sqlite3 FILE .recover`, or move it and the files beside it away: all keys then begin anew, " +
			"with higher tokens"
	case codes.SQLITE_NOTADB:
		advice = "the file is no SQLite database; name another"
	case codes.SQLITE_CANTOPEN:
		advice = "give this user the permission to read and write the file and its folder, or mount it writable: " +
			"SQLite makes FILE-wal and FILE-shm beside it"
	case codes.SQLITE_PERM, codes.SQLITE_AUTH:
		advice = "give this user the permission to read and write the file and its folder"
	case codes.SQLITE_IOERR:
		advice = "the disk failed, or is full: look at its space and at the system's log"
		if code(err) == codes.SQLITE_IOERR_SHORT_READ {
			advice = "something is missing: if the file or FILE-wal was removed while others use it, end those " +
				"(`lsof FILE-shm` tells who they are) and ask again; otherwise look at the disk"
		}
	case codes.SQLITE_PROTOCOL:
		advice = "too many open it at once; ask again"
	case codes.SQLITE_NOMEM:
		advice = "this process is out of memory"
	}
	if lacksTable(err) {
		advice = "tables were removed: ask again, and they are made anew; if only some of them were, bring the file " +
			"back from a copy"
	}
	return fmt.Errorf("store %s: %w; %s", b.name(), err, advice)
}

// explainStore is explain for a transaction of a store. It tells faults from
// unknown outcomes: after these errors the transaction was rolled back.
func (b *base) explainStore(ctx context.Context, err error) error {
	cause := b.explain(ctx, err)
	if ctx.Err() != nil || b.info != nil && b.moved() { // a moved file is made anew
		return cause
	}
	switch code(err) {
	case codes.SQLITE_FULL, codes.SQLITE_READONLY, codes.SQLITE_NOTADB, codes.SQLITE_CORRUPT, codes.SQLITE_PERM:
		return store.Fault(cause)
	}
	return cause
}

// explained is an error whose text already says what to do.
type explained string

func (e explained) Error() string { return string(e) }
