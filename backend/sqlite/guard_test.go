package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
)

// application opens a caller's own database, as callers do, with a table of
// reports.
func application(tb testing.TB, parameters string) *sql.DB {
	tb.Helper()
	return applicationAt(tb, filepath.Join(tb.TempDir(), "app.db"), parameters)
}

func applicationAt(tb testing.TB, file, parameters string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)"+parameters)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS report (id INTEGER PRIMARY KEY, body BLOB, fence_key TEXT, fence_token INTEGER, fence_grant TEXT, fence_seq TEXT)`); err != nil {
		tb.Fatal(err)
	}
	return db
}

// inside calls do in a transaction.
func inside(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func guardIn(tb testing.TB, db *sql.DB, resource Resource, o *GuardOptions) *Guard {
	tb.Helper()
	g, err := NewGuard(db, resource, o)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// TestGuardConformance runs the suite of guards on fence rows and on columns,
// with every way to begin a transaction and to keep a journal.
func TestGuardConformance(t *testing.T) {
	for _, c := range []struct{ form, name, parameters string }{
		{"fence table", "wal, waiting by itself", "&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(0)"},
		{"columns", "a rollback journal, beginning immediately", "&_pragma=journal_mode(truncate)&_pragma=synchronous(off)&_txlock=immediate"},
	} {
		t.Run(c.form+" in "+c.name, func(t *testing.T) {
			t.Parallel()
			db := applicationAt(t, filepath.Join(memoryDir(t), "app.db"), c.parameters)
			guardtest.Run(t, guardtest.Harness{Large: 128 << 10, Make: func(t testing.TB) guardtest.Resource { return resource(t, db, c.form) }})
		})
	}
}

func resource(t testing.TB, db *sql.DB, form string) guardtest.Resource {
	result, err := db.Exec("INSERT INTO report (body) VALUES (NULL)")
	if err != nil {
		t.Fatal(err)
	}
	id, err := result.LastInsertId()
	if err != nil {
		t.Fatal(err)
	}
	var resource Resource = FenceRow{Name: fmt.Sprintf("report/%d", id)}
	if form == "columns" {
		resource = Columns{Table: "report", Where: "id = ?1", Args: []any{id}}
	}
	o := &GuardOptions{LockWait: 30 * time.Second}
	open := func(t testing.TB, keys *signed.Keys) guardtest.Handle {
		o := *o
		o.Keys = keys
		g := guardIn(t, db, resource, &o)
		return guardtest.Handle{Guard: g, Write: func(ctx context.Context, stamp fence.Stamp, payload []byte) error {
			return inside(ctx, db, func(tx *sql.Tx) error {
				if err := g.Admit(ctx, tx, stamp); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, "UPDATE report SET body = coalesce(?2, x'') WHERE id = ?1", id, payload)
				return err
			})
		}}
	}
	return guardtest.Resource{
		Open:   func(t testing.TB) guardtest.Handle { return open(t, nil) },
		Signed: open,
		Read: func(ctx context.Context) (body []byte, written bool, err error) {
			err = db.QueryRowContext(ctx, "SELECT body, body IS NOT NULL FROM report WHERE id = ?1", id).Scan(&body, &written)
			return body, written, err
		},
	}
}

var _ guard.Guard = (*Guard)(nil)

// TestTheMarkIsInTheCallersOwnFile attaches a second file with a fence table to
// the connection. The mark must stay in the first: others who open that file
// would not see it otherwise.
func TestTheMarkIsInTheCallersOwnFile(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	leases := filepath.Join(dir, "croft.db")
	must(t, open(t, leases, nil).Close())
	db := applicationAt(t, filepath.Join(dir, "app.db"), "&_pragma=journal_mode(wal)")
	g := guardIn(t, db, FenceRow{Name: "report"}, nil)
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "ATTACH ?1 AS leases", leases)
	must(t, err)
	tx, err := conn.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, g.Admit(t.Context(), tx, stampOf(1002)))
	must(t, tx.Commit())
	if mark, err := g.Mark(t.Context()); err != nil || mark.Token != 1002 {
		t.Errorf("the mark is %+v, %v", mark, err)
	}
	err = inside(t.Context(), db, func(tx *sql.Tx) error { return g.Admit(t.Context(), tx, stampOf(1001)) })
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("an older owner, by a connection without it: %v", err)
	}
}
