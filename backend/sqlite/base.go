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

	"github.com/croft-dev/croft/fence"
)

// base is an open database: connections, and which file it is.
type base struct {
	db   *sql.DB
	own  bool   // the connections are Croft's to configure and close
	path string // by which it was opened, and by which others will; "" if that is not known
	file string // where that has led
	info fs.FileInfo
	// company is what lies beside the file, as a connection that stays open has found it. There is none in a pool of the caller's.
	company company
	stays   *sql.Conn
	looked  atomic.Int64 // when that was last compared, in nanoseconds since 1970
}

// setupWait bounds the waiting for others while a database is made ready: of many first users, one makes the tables.
const setupWait = 30 * time.Second

// openBase opens the file that a path leads to and makes it ready.
func openBase(ctx context.Context, path string, o *Options) (*base, error) {
	file, info, err := locate(path, o, true)
	if err != nil {
		return nil, err
	}
	db, err := connections(file, o.LockWait)
	if err != nil {
		return nil, err
	}
	b := &base{db: db, own: true, path: path, file: file, info: info}
	err = b.prepare(ctx)
	if err == nil {
		err = b.stay(ctx)
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return b, nil
}

// connections is a pool on a file. Everything in the name that SQLite or its driver would take for a parameter is escaped.
func connections(file string, lockWait time.Duration) (*sql.DB, error) {
	slashed := filepath.ToSlash(file)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/…
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", lockWait.Milliseconds()), "synchronous(full)", "fullfsync(1)", "trusted_schema(0)"},
	}.Encode()}
	c, err := driver.NewConnector(u.String())
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", file, err)
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(9) // one stays, one writes, one watches, the others read
	db.SetMaxIdleConns(4)
	return db, nil
}

// adoptBase makes the caller's own database ready.
func adoptBase(ctx context.Context, db *sql.DB, o *Options) (*base, error) {
	b := &base{db: db}
	if most := db.Stats().MaxOpenConnections; most > 0 && most < 3 {
		return nil, fmt.Errorf("%w store: the database may have %d connections open, and the store keeps one or two; allow at least 3 (SetMaxOpenConns)", fence.ErrInvalid, most)
	}
	// Of many new connections that all set the journal's mode on a new file, some are told that it is locked.
	if err := patiently(ctx, setupWait, func() error { return b.find(ctx) }); err != nil {
		return nil, b.explain(ctx, err)
	}
	if b.file == "" {
		return nil, fmt.Errorf("%w store: the database is in memory, one for each connection: leases live in a file that all contenders can open", fence.ErrInvalid)
	}
	if _, _, err := locate(b.file, o, false); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// adoptAgain makes it ready once more, if the file is still the same: connections of the caller's pool keep what they have open, and nothing tells those that have another file from the others.
func (b *base) adoptAgain(ctx context.Context, o *Options) (*base, error) {
	if isAbandoned(b.info) {
		return nil, abandoned(b.name())
	}
	if b.moved() {
		return nil, explained(fmt.Sprintf("store %s: the file was moved or removed, and the connections of the database do not see what is there now; put it back, or close the database and open it anew, and the store after it", b.name()))
	}
	return adoptBase(ctx, b.db, o)
}

// find asks which file a database is in.
func (b *base) find(ctx context.Context) error {
	if err := b.db.QueryRowContext(ctx, sqlFile).Scan(&b.file); err != nil || b.file == "" {
		return err
	}
	info, err := os.Lstat(b.file)
	b.info = info
	return err
}

// moved reports whether the path no longer leads to the file that is open: then nobody else sees what is written there.
func (b *base) moved() bool {
	info, err := os.Lstat(b.file)
	if err == nil && b.path != "" && b.path != b.file && os.SameFile(info, b.info) {
		info, err = os.Stat(b.path) // a link on the way may lead elsewhere by now
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
	return errors.Join(b.stays.Close(), b.db.Close())
}

// patiently repeats what others keep from being done, for a bounded time.
func patiently(ctx context.Context, wait time.Duration, do func() error) error {
	end := time.Now().Add(wait)
	for try := 0; ; try++ {
		err := do()
		if !isBusy(err) || time.Now().After(end) {
			return err
		}
		if ctx.Err() != nil {
			return over(ctx)
		}
		pause(ctx.Done(), try)
	}
}
