package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// lookEvery is how often a process looks whether the files beside a database are still those that it has open. To look costs a good part of a flush; so long it may go on after somebody has removed them and started another.
const lookEvery = 10 * time.Millisecond

// stay takes a connection that is never given back: while it is open, nobody who keeps to SQLite's rules removes the log and the shared memory.
func (b *base) stay(ctx context.Context) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err := dataVersion(ctx, conn); err != nil { // it opens the files
		return b.explain(ctx, errors.Join(err, conn.Close()))
	}
	b.company, b.stays = b.lookAround(), conn
	return nil
}

// company are the log and the shared memory beside a file, which SQLite finds by their names.
type company []fs.FileInfo

func (b *base) lookAround() (c company) {
	for _, beside := range []string{"-wal", "-shm"} {
		info, err := os.Lstat(b.file + beside)
		if errors.Is(err, fs.ErrNotExist) {
			info = nil
		} else if err != nil {
			return nil // nothing is known
		}
		c = append(c, info)
	}
	return c
}

// cutOff reports whether others find another log or another shared memory than those that are open here.
func (b *base) cutOff(c company) bool {
	at := time.Now().UnixNano()
	if since := at - b.looked.Load(); c == nil || since >= 0 && since < int64(lookEvery) {
		return false
	}
	b.looked.Store(at)
	now := b.lookAround()
	for i := range now {
		if c[i] != nil && (now[i] == nil || !os.SameFile(c[i], now[i])) {
			return !b.moved() // with the file itself they may go
		}
	}
	return false
}

// cutOffs are the files that this process must leave alone for good. It cannot be told whether some connection still has what was beside them, which it would share with all new ones; and the last that is closed would copy an old log
// over what others have written since.
var cutOffs struct {
	mu    sync.Mutex
	files []fs.FileInfo
}

// abandon lets go of a file for good, without closing it.
func (b *base) abandon() error {
	cutOffs.mu.Lock()
	defer cutOffs.mu.Unlock()
	cutOffs.files = append(cutOffs.files, b.info)
	return abandoned(b.name())
}

// isAbandoned reports whether a file must be left alone.
func isAbandoned(info fs.FileInfo) bool {
	cutOffs.mu.Lock()
	defer cutOffs.mu.Unlock()
	return slices.ContainsFunc(cutOffs.files, func(f fs.FileInfo) bool { return os.SameFile(f, info) })
}

func abandoned(file string) error {
	return explained(fmt.Sprintf("store %[1]s: %[1]s-wal or %[1]s-shm was removed or replaced while it was in use: others do not see what is done here, and writing would damage the file; end this process and start it again. "+
		"Those two files belong to the database: leave them to it", file))
}

// gone is the error of somebody who has written to a file that is no longer at its path; nil if it is there.
func (s *Store) gone(b *base) error {
	if !b.moved() {
		return nil
	}
	s.forget(b) // the next one finds what is there now
	return explained(fmt.Sprintf("store %s: the file was moved or removed: nobody else sees what was written there; ask again", b.name()))
}

// apart is the error of somebody who is about to use a log or a shared memory that is not that of the others; nil if it is. The file is let go of for good then.
func (s *Store) apart(b *base, c company) error {
	if !b.cutOff(c) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == b {
		s.base = nil
	}
	return b.abandon()
}
