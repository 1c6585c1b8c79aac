package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/croft-dev/croft/fence"
)

// applicationID marks the files that Croft itself has made. It spells "Crft".
// file(1) and the sqlite3 shell show it.
const applicationID = 0x43726674

// Schema returns the SQL text that makes all tables of stores, guards and
// ledgers. Users can run it with the sqlite3 shell, in a new file or beside
// other tables. Where the tables are already there, it fails and changes
// nothing.
func Schema() string {
	var b strings.Builder
	b.WriteString("-- Everything that Croft keeps in SQLite. It is made on first use; " +
		"to make it by hand, in a new file or beside your own tables:\n" +
		"--   croft schema sqlite | sqlite3 -bail FILE\n\n" +
		"PRAGMA journal_mode = WAL;\n\nBEGIN IMMEDIATE;\n\n" + sqlPrepare + ";\n")
	for _, m := range migrations() {
		fmt.Fprintf(&b, "\n-- %s\n\n%s\n\nINSERT INTO croft_migration (version, name) VALUES (%d, '%s');\n",
			m.name, m.text, m.version, m.name)
	}
	b.WriteString("\nCOMMIT;\n")
	return b.String()
}

// contents describes a file before Croft touches it.
type contents struct {
	application int64
	objects     int // tables, indexes and so on
	made        int // 1 if Croft's tables are there
	journal     string
}

func look(ctx context.Context, conn *sql.Conn) (c contents, err error) {
	if err := conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&c.application); err != nil {
		return c, err
	}
	if err := conn.QueryRowContext(ctx, sqlContents).Scan(&c.objects, &c.made); err != nil {
		return c, err
	}
	err = conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&c.journal)
	return c, err
}

// prepare refuses the database of another application, and makes missing
// tables. It waits up to setupWait for other processes.
func (b *base) prepare(ctx context.Context) error {
	err := retryBusy(ctx, setupWait, func() error {
		conn, err := b.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return b.setUp(ctx, conn)
	})
	if errors.Is(err, fence.ErrInvalid) {
		return err
	}
	return b.explain(ctx, err)
}

func (b *base) setUp(ctx context.Context, conn *sql.Conn) error {
	c, err := look(ctx, conn)
	if err != nil {
		return err
	}
	fresh := c.objects == 0 && c.application == 0
	if b.own && !fresh && c.made == 0 && c.application != applicationID {
		return fmt.Errorf("%w store %s: it is the database of another application (%d tables and indexes, "+
			"application_id %#x) and has no leases; name a file of its own. "+
			"To keep leases beside your tables, make theirs first: croft schema sqlite | sqlite3 -bail FILE",
			fence.ErrInvalid, b.name(), c.objects, c.application)
	}
	if b.frozen {
		return b.checkFrozen(ctx, conn)
	}
	if c.journal != "wal" {
		if !b.own || !fresh && c.application != applicationID {
			return fmt.Errorf("%w store %s: its journal_mode is %s; leases need wal, where readers and writers do "+
				"not wait for each other: PRAGMA journal_mode = WAL, once", fence.ErrInvalid, b.name(), c.journal)
		}
		if err := b.beginWAL(ctx, conn); err != nil {
			return err
		}
	}
	return b.migrate(ctx, conn, fresh)
}

// checkFrozen refuses a file without the tables of this version: nothing can be
// made there.
func (b *base) checkFrozen(ctx context.Context, conn *sql.Conn) error {
	version := 0
	if err := conn.QueryRowContext(ctx, sqlVersion).Scan(&version); err != nil {
		return err
	}
	if version < len(migrations()) {
		return explained(fmt.Sprintf("store %s: an older version has made its tables, and it is mounted read-only; "+
			"mount it writable once", b.name()))
	}
	return nil
}

// beginWAL sets up a new file: with a write-ahead log, and with incremental
// vacuum, so that sweeps can give free pages back to the file system.
func (b *base) beginWAL(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "PRAGMA auto_vacuum = INCREMENTAL"); err != nil {
		return err
	}
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w store %s: SQLite cannot keep a write-ahead log there (journal_mode stays %s): its "+
			"file system has no shared memory, or the file may not be written; choose a local disk",
			fence.ErrInvalid, b.name(), mode)
	}
	return nil
}

// migrate brings the tables up to this version, in one transaction. Other first
// users see all of it or nothing.
func (b *base) migrate(ctx context.Context, conn *sql.Conn, fresh bool) error {
	all := migrations()
	version := 0
	if err := conn.QueryRowContext(ctx, sqlVersion).Scan(&version); err != nil && !lacksTable(err) {
		return err
	}
	if version >= len(all) {
		return nil // a newer version keeps the tables of this one
	}
	if _, err := conn.ExecContext(ctx, sqlBegin); err != nil {
		return err
	}
	err := b.migrateFrom(ctx, conn, all, fresh)
	if err == nil {
		_, err = conn.ExecContext(ctx, sqlCommit)
	}
	if err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), sqlRollback) // fails if the transaction is over already
	}
	return err
}

// session is a connection or a transaction.
type session interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

func (b *base) migrateFrom(ctx context.Context, conn session, all []migration, fresh bool) error {
	if _, err := conn.ExecContext(ctx, sqlPrepare); err != nil {
		return err
	}
	version := 0
	if err := conn.QueryRowContext(ctx, sqlVersion).Scan(&version); err != nil { // now under the lock
		return err
	}
	for _, m := range all[min(version, len(all)):] {
		if _, err := conn.ExecContext(ctx, m.text); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
		if _, err := conn.ExecContext(ctx, sqlMigrated, m.version, m.name); err != nil {
			return err
		}
	}
	if !b.own || !fresh {
		return nil // the two settings below belong to the file's owner
	}
	_, err := conn.ExecContext(ctx,
		fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(all)))
	return err
}
