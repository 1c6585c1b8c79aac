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

// lookEvery is how often a process checks that the files beside a database are
// still those that it has open. A check costs a good part of a flush. After
// somebody has replaced the files, the process may go on for this long.
const lookEvery = 10 * time.Millisecond

// pin opens a connection and keeps it until the base is closed. While it is
// open, no process that keeps to SQLite's rules removes the log or the shared
// memory.
func (b *base) pin(ctx context.Context) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err := dataVersion(ctx, conn); err != nil { // it opens the files
		return b.explain(ctx, errors.Join(err, conn.Close()))
	}
	b.sideFiles, b.pinned = b.readSideFiles(), conn
	return nil
}

// sideFiles identifies the log and the shared memory beside a file. SQLite
// finds both by their names. An entry is nil if there was no such file. A nil
// sideFiles means that nothing is known.
type sideFiles []fs.FileInfo

func (b *base) readSideFiles() (c sideFiles) {
	for _, beside := range []string{"-wal", "-shm"} {
		info, err := os.Lstat(b.file + beside)
		if errors.Is(err, fs.ErrNotExist) {
			info = nil
		} else if err != nil {
			return nil
		}
		c = append(c, info)
	}
	return c
}

// sideFilesReplaced reports whether the log or the shared memory that is open
// here has been removed or replaced, so that other processes use another one.
// It checks at most once in lookEvery, and reports false in between.
func (b *base) sideFilesReplaced(c sideFiles) bool {
	at := time.Now().UnixNano()
	if since := at - b.looked.Load(); c == nil || since >= 0 && since < int64(lookEvery) {
		return false
	}
	b.looked.Store(at)
	now := b.readSideFiles()
	for i := range now {
		if c[i] != nil && (now[i] == nil || !os.SameFile(c[i], now[i])) {
			return !b.moved() // they may move together with the file
		}
	}
	return false
}

// abandonedFiles lists the files that this process must never open or close
// again. A connection may still have the old log and shared memory open, and
// SQLite would share them with every new connection. Closing the last
// connection would copy the old log over newer data.
var abandonedFiles struct {
	mu    sync.Mutex
	files []fs.FileInfo
}

// abandon stops using the file for good, without closing it. It returns the
// error that tells the caller so.
func (b *base) abandon() error {
	abandonedFiles.mu.Lock()
	defer abandonedFiles.mu.Unlock()
	abandonedFiles.files = append(abandonedFiles.files, b.info)
	return abandoned(b.name())
}

// isAbandoned reports whether this process has abandoned the file.
func isAbandoned(info fs.FileInfo) bool {
	abandonedFiles.mu.Lock()
	defer abandonedFiles.mu.Unlock()
	return slices.ContainsFunc(abandonedFiles.files, func(f fs.FileInfo) bool { return os.SameFile(f, info) })
}

func abandoned(file string) error {
	return explained(fmt.Sprintf("store %[1]s: %[1]s-wal or %[1]s-shm was removed or replaced while it was in use: "+
		"others do not see what is done here, and writing would damage the file; end this process and start it again. "+
		"Those two files belong to the database: leave them to it", file))
}

// checkMoved returns an error if the file is no longer at its path after a
// write, and nil if it is there. On an error it also closes the database.
func (s *Store) checkMoved(b *base) error {
	if !b.moved() {
		return nil
	}
	s.forget(b) // the next call opens the file that is there now
	return explained(fmt.Sprintf("store %s: the file was moved or removed: "+
		"nobody else sees what was written there; ask again", b.name()))
}

// checkSideFiles returns an error if other processes use another log or shared
// memory than c, and nil otherwise. On an error it also abandons the file.
func (s *Store) checkSideFiles(b *base, c sideFiles) error {
	if !b.sideFilesReplaced(c) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == b {
		s.base = nil
	}
	return b.abandon()
}
