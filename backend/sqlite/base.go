package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wait"
)

// base is an open database: its connections, and which file it is.
type base struct {
	db   *sql.DB
	own  bool   // Croft configures and closes the connections, not the caller
	path string // the path by which it was opened; "" if that is not known
	file string // the file that the path led to
	info fs.FileInfo
	// frozen says that the file is on a read-only mount, without a log beside
	// it. It can be read as it is.
	frozen bool
	// sideFiles are the files beside the database that the connection pinned
	// has open. Both fields are nil in a pool of the caller's.
	sideFiles sideFiles
	pinned    *sql.Conn
	looked    atomic.Int64 // when sideFilesReplaced last looked, in nanoseconds since 1970
}

// setupWait limits how long opening a database waits for other processes. Of
// many first users, one makes the tables and the others wait.
const setupWait = 30 * time.Second

// openBase opens the file that a path leads to, and makes missing tables.
func openBase(ctx context.Context, path string, o *Options) (*base, error) {
	file, info, err := locate(path, o, true)
	if err != nil {
		return nil, err
	}
	open := func(frozen bool) (*base, error) {
		var settings []string
		if frozen { // read it without locks, log and shared memory, which cannot be made there
			settings = []string{"immutable"}
		}
		db, err := connections(file, o.LockWait, settings...)
		if err != nil {
			return nil, err
		}
		b := &base{db: db, own: true, path: path, file: file, info: info, frozen: frozen}
		err = b.prepare(ctx)
		if err == nil {
			err = b.pin(ctx)
		}
		if err != nil {
			_ = db.Close()
			return nil, err
		}
		return b, nil
	}
	b, err := open(false)
	if primary(err) == codes.SQLITE_CANTOPEN && freezable(file) {
		if frozen, err := open(true); err == nil {
			return frozen, nil
		}
	}
	return b, err
}

// freezable reports whether nobody can write to a file here, and nobody
// elsewhere has it open: a process that does keeps a log beside it.
func freezable(file string) bool { return onReadOnlyMount(file) && !exists(file+"-wal") }

func exists(file string) bool {
	_, err := os.Lstat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// connections opens a pool on a file. It escapes every part of the name that
// SQLite or its driver would take for a parameter, and turns on the settings.
func connections(file string, lockWait time.Duration, settings ...string) (*sql.DB, error) {
	slashed := filepath.ToSlash(file)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/…
	}
	query := url.Values{
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", lockWait.Milliseconds()),
			"synchronous(full)", "fullfsync(1)", "trusted_schema(0)",
		},
	}
	for _, name := range settings {
		query.Set(name, "1")
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: query.Encode()}
	c, err := driver.NewConnector(u.String())
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", file, err)
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(9) // one is pinned, one writes, one watches, the others read
	db.SetMaxIdleConns(4)
	return db, nil
}

// adoptBase checks the caller's own database, and makes missing tables.
func adoptBase(ctx context.Context, db *sql.DB, o *Options) (*base, error) {
	b := &base{db: db}
	if most := db.Stats().MaxOpenConnections; most > 0 && most < 3 {
		return nil, fmt.Errorf("%w store: the database may have %d connections open, and the store keeps one or two; "+
			"allow at least 3 (SetMaxOpenConns)", fence.ErrInvalid, most)
	}
	// If many new connections set journal_mode on a new file at once, SQLite
	// tells some of them that the file is locked.
	if err := retryBusy(ctx, setupWait, func() error { return b.find(ctx) }); err != nil {
		return nil, b.explain(ctx, err)
	}
	if b.file == "" {
		return nil, fmt.Errorf("%w store: the database is in memory, one for each connection: leases live in a file "+
			"that all contenders can open", fence.ErrInvalid)
	}
	if _, _, err := locate(b.file, o, false); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// adoptAgain checks the caller's own database once more. It refuses a file that
// was moved: some connections of the pool may have the old file open and others
// the new one, and nothing tells them apart.
func (b *base) adoptAgain(ctx context.Context, o *Options) (*base, error) {
	if isAbandoned(b.info) {
		return nil, abandoned(b.name())
	}
	if b.moved() {
		return nil, explained(fmt.Sprintf("store %s: the file was moved or removed, "+
			"and the connections of the database do not see what is there now; "+
			"put it back, or close the database and open it anew, and the store after it", b.name()))
	}
	return adoptBase(ctx, b.db, o)
}

// find asks SQLite which file the database is in.
func (b *base) find(ctx context.Context) error {
	if err := b.db.QueryRowContext(ctx, sqlFile).Scan(&b.file); err != nil || b.file == "" {
		return err
	}
	info, err := os.Lstat(b.file)
	b.info = info
	return err
}

// moved reports whether the path no longer leads to the open file. Other
// processes then do not see the writes to it. A frozen file that somebody
// writes to through another mount counts as moved.
func (b *base) moved() bool {
	info, err := os.Lstat(b.file)
	if b.frozen && (err != nil || exists(b.file+"-wal") || !info.ModTime().Equal(b.info.ModTime())) {
		return true
	}
	if err == nil && b.path != "" && b.path != b.file && os.SameFile(info, b.info) {
		info, err = os.Stat(b.path) // a symbolic link may lead elsewhere by now
	}
	return err != nil || !os.SameFile(info, b.info)
}

func (b *base) name() string {
	if b.file == "" {
		return "(database)"
	}
	return b.file
}

func (b *base) close() error {
	if !b.own {
		return nil
	}
	return errors.Join(b.pinned.Close(), b.db.Close())
}

// retryBusy calls do again and again while SQLite says that the file is locked,
// until patience has passed or ctx ends.
func retryBusy(ctx context.Context, patience time.Duration, do func() error) error {
	end := time.Now().Add(patience)
	for try := 0; ; try++ {
		err := do()
		if !isBusy(err) || time.Now().After(end) {
			return err
		}
		if ctx.Err() != nil {
			return wait.Ended(ctx)
		}
		pause(ctx.Done(), try)
	}
}
