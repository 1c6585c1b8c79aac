//go:build unix

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAWriterStoppedInsideTheGuardIsNamed stops a process between Admit and its
// write. Others get an error that names the process. If it is resumed, its
// write counts and comes first. If it is killed, nothing of it counts.
func TestAWriterStoppedInsideTheGuardIsNamed(t *testing.T) {
	for _, journal := range []string{"wal", "delete"} {
		for _, end := range []string{"resumed", "killed"} {
			t.Run(end+" in "+journal, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(memoryDir(t), "app.db")
				db := applicationAt(t, file, "&_pragma=journal_mode("+journal+")")
				g := guardIn(t, db, FenceRow{Name: "report"}, &GuardOptions{LockWait: 300 * time.Millisecond})
				c := startChild(t, "stop guard", file)
				c.Expect(t, "ready")
				fmt.Fprintln(c.In, "go")
				c.Expect(t, "inside")
				stopped(t, c)

				_, err := g.Raise(t.Context(), stampOf(1002))
				told(t, err, c, "raising")
				if !errors.Is(err, guard.ErrBusy) {
					t.Errorf("it is not ErrBusy: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if _, err := g.Raise(ctx, stampOf(1002)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("raising for a moment: %v", err)
				}
				if mark, err := g.Mark(t.Context()); err != nil || !mark.IsZero() {
					t.Errorf("the mark is %+v before anything was committed, %v", mark, err)
				}

				signal, written := syscall.SIGCONT, 1
				if end == "killed" {
					signal, written = syscall.SIGKILL, 0
				}
				if err := c.Cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if end == "resumed" {
					c.Expect(t, "answer <nil>")
				} else {
					_ = c.Cmd.Wait()
				}
				// SQLite takes a moment to recover the database.
				patient := guardIn(t, db, FenceRow{Name: "report"}, &GuardOptions{LockWait: testenv.Patience})
				if mark, err := patient.Raise(t.Context(), stampOf(1002)); err != nil || mark.Token != 1002 {
					t.Errorf("raising after it: %+v, %v", mark, err)
				}
				var rows int
				if query(t, file, "SELECT count(*) FROM report", &rows); rows != written {
					t.Errorf("%d rows were written, want %d", rows, written)
				}
			})
		}
	}
}

// TestATransactionThatReadFirstIsToldToBeginAgain has another transaction write
// after the first has read. SQLite cannot bring the first up to date.
func TestATransactionThatReadFirstIsToldToBeginAgain(t *testing.T) {
	t.Parallel()
	db := application(t, "&_pragma=journal_mode(wal)")
	g := guardIn(t, db, FenceRow{Name: "report"}, nil)
	for _, written := range []bool{false, true} {
		err := inside(t.Context(), db, func(tx *sql.Tx) error {
			var n int
			must(t, tx.QueryRow("SELECT count(*) FROM report").Scan(&n))
			if written {
				_, err := db.Exec("INSERT INTO report (body) VALUES ('x')")
				must(t, err)
			}
			return g.Admit(t.Context(), tx, stampOf(1001))
		})
		if !written && err != nil {
			t.Errorf("it has read, and nobody has written since: %v", err)
		}
		if written && (!errors.Is(err, guard.ErrBusy) || !strings.Contains(err.Error(), "Admit first")) {
			t.Errorf("it has read what is old by now: %v", err)
		}
	}
}

// TestARollbackUndoesTheMark checks that a rollback undoes the
// mark, and the tables that were made for it.
func TestARollbackUndoesTheMark(t *testing.T) {
	t.Parallel()
	db := application(t, "&_pragma=journal_mode(wal)")
	g := guardIn(t, db, FenceRow{Name: "report"}, nil)
	changed := errors.New("changed my mind")
	err := inside(t.Context(), db, func(tx *sql.Tx) error {
		must(t, g.Admit(t.Context(), tx, stampOf(1001)))
		return changed
	})
	if !errors.Is(err, changed) {
		t.Fatal(err)
	}
	if mark, err := g.Mark(t.Context()); err != nil || !mark.IsZero() {
		t.Errorf("the mark is %+v, %v", mark, err)
	}
	if r, err := g.Rekeyed(t.Context()); err != nil || r != (guard.Rekeyed{}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestARefusalTouchesNothing checks that a refusal fires no trigger of the
// guarded table and writes no row, and that the transaction can go on.
func TestARefusalTouchesNothing(t *testing.T) {
	t.Parallel()
	db := application(t, "&_pragma=journal_mode(wal)")
	_, err := db.Exec("INSERT INTO report (id) VALUES (1); CREATE TABLE fired (n INTEGER); CREATE TRIGGER spy AFTER UPDATE ON report BEGIN INSERT INTO fired VALUES (1); END")
	must(t, err)
	g := guardIn(t, db, Columns{Table: "report", Where: "id = ?1", Args: []any{1}}, nil)
	_, err = g.Raise(t.Context(), stampOf(1002))
	must(t, err)
	_, err = db.Exec("DELETE FROM fired")
	must(t, err)
	var stale *fence.StaleError
	err = inside(t.Context(), db, func(tx *sql.Tx) error {
		if err := g.Admit(t.Context(), tx, stampOf(1001)); !errors.As(err, &stale) {
			t.Errorf("an older owner: %v", err)
		}
		_, err := tx.Exec("INSERT INTO report (body) VALUES ('of another resource')")
		return err
	})
	must(t, err)
	var fired int
	must(t, db.QueryRow("SELECT count(*) FROM fired").Scan(&fired))
	if fired != 0 {
		t.Errorf("%d triggers fired", fired)
	}
	for where, says := range map[string]string{"id = 7": "insert the row", "id >= 1": "name one row"} {
		_, err := guardIn(t, db, Columns{Table: "report", Where: where}, nil).Raise(t.Context(), stampOf(1003))
		if !errors.Is(err, ErrNoSuchRow) || !strings.Contains(err.Error(), says) {
			t.Errorf("where %s: %v", where, err)
		}
	}
	for _, bad := range []Resource{Columns{Table: "report; DROP TABLE report", Where: "1"}, Columns{Table: "report"}, Columns{Table: "report", Where: "1", Key: `"x"`}, FenceRow{}, FenceRow{Name: "a//b"}} {
		if _, err := NewGuard(db, bad, nil); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%+v: %v, want invalid", bad, err)
		}
	}
}

// TestTheGuardOfAURLIsTheSame checks that a guard opened by its URL has the
// same mark as the one in the caller's transactions.
func TestTheGuardOfAURLIsTheSame(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "app.db")
	db := applicationAt(t, file, "&_pragma=journal_mode(wal)")
	mine := guardIn(t, db, FenceRow{Name: "report/daily"}, nil)
	byURL, err := guard.Open(t.Context(), mine.Target())
	must(t, err)
	defer byURL.Close()
	if mark, err := byURL.Mark(t.Context()); err != nil || !mark.IsZero() {
		t.Errorf("before anything: %+v, %v", mark, err)
	}
	var tables int
	if query(t, file, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'croft%'", &tables); tables != 0 {
		t.Errorf("looking at the mark has made %d tables", tables)
	}
	if _, err := byURL.Raise(t.Context(), stampOf(1002)); err != nil {
		t.Fatal(err)
	}
	err = inside(t.Context(), db, func(tx *sql.Tx) error { return mine.Admit(t.Context(), tx, stampOf(1001)) })
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("an older owner: %v", err)
	}
	if byURL.Target() != mine.Target() || !strings.HasSuffix(mine.Target(), "/app.db#report/daily") {
		t.Errorf("%s and %s", byURL.Target(), mine.Target())
	}
	var mode string
	var application int
	query(t, file, "SELECT (SELECT journal_mode FROM pragma_journal_mode), (SELECT application_id FROM pragma_application_id)", &mode, &application)
	if mode != "wal" || application != 0 {
		t.Errorf("the caller's file has become %s, %#x", mode, application)
	}
}

// TestAFenceInAFileThatIsGoneIsNotUp replaces the file after the guard was
// opened. Raise must fail: owners that open the file now see another mark.
func TestAFenceInAFileThatIsGoneIsNotUp(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "app.db")
	mine := guardIn(t, applicationAt(t, file, "&_pragma=journal_mode(wal)"), FenceRow{Name: "report"}, nil)
	g, err := guard.Open(t.Context(), mine.Target())
	must(t, err)
	defer g.Close()
	_, err = g.Raise(t.Context(), stampOf(1001))
	must(t, err)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		must(t, os.Rename(file+suffix, file+".old"+suffix))
	}
	applicationAt(t, file, "&_pragma=journal_mode(wal)")
	for _, g := range []guard.Guard{g, mine} {
		if mark, err := g.Raise(t.Context(), stampOf(1002)); err == nil || !strings.Contains(err.Error(), "open it again") {
			t.Errorf("raised to %+v where nobody sees it, %v", mark, err)
		}
	}
	again, err := guard.Open(t.Context(), mine.Target())
	must(t, err)
	defer again.Close()
	if mark, err := again.Raise(t.Context(), stampOf(1002)); err != nil || mark.Token != 1002 {
		t.Errorf("opened again: %+v, %v", mark, err)
	}
}

// TestColumnsAreNotOpenedByURL checks that a takeover does not take columns for
// a fence row. It would raise a fence that keeps nobody out, and report
// success.
func TestColumnsAreNotOpenedByURL(t *testing.T) {
	t.Parallel()
	db := applicationAt(t, filepath.Join(memoryDir(t), "app.db"), "")
	mine := guardIn(t, db, Columns{Table: "report", Where: "id = ?1", Args: []any{1}}, nil)
	g, err := guard.Open(t.Context(), mine.Target())
	if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "the same Columns") {
		t.Errorf("%s: %v, want invalid", mine.Target(), err)
	}
	if err == nil {
		_ = g.Close()
	}
}

// TestAnImpossibleRowAdmitsNobody plants invalid marks, as another program that
// writes to the table might.
func TestAnImpossibleRowAdmitsNobody(t *testing.T) {
	t.Parallel()
	db := applicationAt(t, filepath.Join(memoryDir(t), "app.db"), "")
	_, err := db.Exec(`INSERT INTO report (id) VALUES (1)`)
	must(t, err)
	g := guardIn(t, db, Columns{Table: "report", Where: "id = ?1", Args: []any{1}}, nil)
	for _, planted := range []string{"fence_token = -5", "fence_token = 9007199254740992", "fence_key = 'a//b'", "fence_grant = 'nobody'"} {
		_, err := db.Exec(`UPDATE report SET fence_key = 'jobs/report', fence_token = 10, fence_grant = '', fence_seq = '0'`)
		must(t, err)
		_, err = db.Exec(`UPDATE report SET ` + planted)
		must(t, err)
		if _, err := g.Mark(t.Context()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: a look: %v, want ErrDamaged", planted, err)
		}
		err = inside(t.Context(), db, func(tx *sql.Tx) error { return g.Admit(t.Context(), tx, stampOf(1001)) })
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: a write: %v, want ErrDamaged", planted, err)
		}
	}
}

// TestAMarkThatDoesNotMoveAdmitsNothing has a trigger of the caller's suppress
// the change of the mark. A write must not count then, because the mark would
// not show it.
func TestAMarkThatDoesNotMoveAdmitsNothing(t *testing.T) {
	t.Parallel()
	db := applicationAt(t, filepath.Join(memoryDir(t), "app.db"), "")
	_, err := db.Exec(`INSERT INTO report (id) VALUES (1); CREATE TRIGGER still BEFORE UPDATE ON report BEGIN SELECT RAISE(IGNORE); END`)
	must(t, err)
	g := guardIn(t, db, Columns{Table: "report", Where: "id = ?1", Args: []any{1}}, nil)
	err = inside(t.Context(), db, func(tx *sql.Tx) error { return g.Admit(t.Context(), tx, stampOf(1001)) })
	if err == nil || !strings.Contains(err.Error(), "trigger") {
		t.Errorf("admitted without a mark: %v", err)
	}
}
