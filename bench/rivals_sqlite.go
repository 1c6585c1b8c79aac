package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // driver of the floor and of Croft

	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/store"
)

// turns is how many times more often rivals alternate here than on servers,
// with turns that much shorter. The workload mostly measures the disk, which
// other programs use too. For a second it may become several times slower, and
// one rival would bear all of that.
const turns = 5

// onSQLite makes a workload of a contest in SQLite files.
func onSQLite(
	rivals func(dir string) []rival,
	run func(ctx context.Context, c *contest, t *table) error,
) func(ctx context.Context, b *bench) error {
	return func(ctx context.Context, b *bench) error {
		dir, err := os.MkdirTemp(b.dir, "sqlite-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		rounds, span := b.rounds, b.span
		defer func() { b.rounds, b.span = rounds, span }()
		b.rounds, b.span = rounds*turns, span/turns
		e := &engine{name: "SQLite", cpu: func() time.Duration { return 0 }} // it runs in this process
		return b.contest(ctx, e, rivals(dir), run)
	}
}

func sqliteRivals(dir string) []rival {
	return append([]rival{floorSQLite(dir), croftSQLite(dir, false)}, flockRivals(dir)...)
}

func sqliteWaiters(dir string) []rival {
	return append([]rival{croftSQLite(dir, false), croftSQLite(dir, true)}, flockRivals(dir)...)
}

// croftSQLite is Croft with one client for all workers. With apart it has a
// client and a connection for each, as if each were a process.
func croftSQLite(dir string, apart bool) rival {
	name := croftName
	if apart {
		name += ", a client for each waiter"
	}
	return rival{name, func(_ context.Context, workers int) (*opened, error) {
		n := 1
		if apart {
			n = workers
		}
		open := func(ctx context.Context) (store.Store, error) {
			return sqlite.Open(ctx, filepath.Join(dir, "croft.db"), nil)
		}
		return openCroft(&meter{}, n, open, func() {})
	}}
}

// The smallest statements that lock and unlock a row safely, each in one
// commit.
const (
	sqliteTable = `CREATE TABLE IF NOT EXISTS floor (
			key TEXT PRIMARY KEY,
			token INTEGER NOT NULL,
			holder TEXT NOT NULL,
			deadline INTEGER NOT NULL
		) WITHOUT ROWID`
	sqliteLock = `INSERT INTO floor AS f VALUES (?1, 1, ?2, ?4)
		ON CONFLICT (key) DO UPDATE
		SET token = f.token + 1, holder = excluded.holder, deadline = excluded.deadline
		WHERE f.deadline < ?3`
	sqliteFree = `UPDATE floor SET deadline = 0 WHERE key = ?1 AND holder = ?2`
)

// floorSQLite is two handwritten prepared statements on one connection, as
// durable as Croft's. SQLite has one writer at a time, so more connections
// would only wait for each other.
func floorSQLite(dir string) rival {
	return rival{floorName, func(ctx context.Context, _ int) (*opened, error) {
		pragmas := url.Values{
			"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(5000)"},
			"_txlock": {"immediate"},
		}
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "floor.db")+"?"+pragmas.Encode())
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		if _, err := db.ExecContext(ctx, sqliteTable); err != nil {
			return nil, err
		}
		lock, err := db.PrepareContext(ctx, sqliteLock)
		if err != nil {
			return nil, err
		}
		free, err := db.PrepareContext(ctx, sqliteFree)
		if err != nil {
			return nil, err
		}
		t := func(ctx context.Context, key string) (func(context.Context) error, error) {
			secret, now := rand.Text(), time.Now()
			if _, err := lock.ExecContext(ctx, key, secret, now.UnixMicro(), now.Add(ttl).UnixMicro()); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { _, err := free.ExecContext(ctx, key, secret); return err }, nil
		}
		return &opened{takes: []take{t}, meter: &meter{}, close: func() { _ = db.Close() }}, nil
	}}
}
