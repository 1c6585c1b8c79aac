package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/fence"
)

// An UPDATE counts only while its writer is the newest owner. The guard checks
// the mark under the write lock, in the same transaction.
func ExampleGuard_Admit() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "croft-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec(`
		CREATE TABLE report (id TEXT PRIMARY KEY, body TEXT, fence_key TEXT, fence_token INTEGER, fence_grant TEXT, fence_seq TEXT);
		INSERT INTO report (id) VALUES ('daily')`)
	if err != nil {
		log.Fatal(err)
	}

	g, err := sqlite.NewGuard(db, sqlite.Columns{Table: "report", Where: "id = ?1", Args: []any{"daily"}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	write := func(stamp fence.Stamp, body string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after a commit
		if err := g.Admit(ctx, tx, stamp); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE report SET body = ?1 WHERE id = 'daily'", body); err != nil {
			return err
		}
		return tx.Commit()
	}

	// Leases give these out: lease.Stamp().
	ann := fence.Stamp{Key: "jobs/report", Token: 1001, Grant: "0123456789abcdef0123456789abcdef"}
	bob := fence.Stamp{Key: "jobs/report", Token: 1002, Grant: "fedcba9876543210fedcba9876543210"}

	fmt.Println("ann:", write(ann, "first draft"))
	fmt.Println("ann again:", write(ann, "second draft"))
	fmt.Println("bob, who took over:", write(bob, "final"))
	var stale *fence.StaleError
	if err := write(ann, "third draft"); errors.As(err, &stale) {
		fmt.Printf("ann wakes up: refused, %d is older than %d\n", stale.Presented.Token, stale.Newest.Token)
	}
	var body string
	err = db.QueryRow("SELECT body FROM report WHERE id = 'daily'").Scan(&body)
	fmt.Println("the report:", body, err)
	// Output:
	// ann: <nil>
	// ann again: <nil>
	// bob, who took over: <nil>
	// ann wakes up: refused, 1001 is older than 1002
	// the report: final <nil>
}

// A store beside the application's own tables: one file holds both.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "croft-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	st := sqlite.New(db, nil)
	defer st.Close()
	rec, err := st.Get(context.Background(), "jobs/report")
	fmt.Println("remembered:", !rec.IsZero(), err)
	// Output:
	// remembered: false <nil>
}
