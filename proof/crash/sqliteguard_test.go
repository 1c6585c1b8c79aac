//go:build linux || darwin

package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// application is a program's database with a table that a fence row guards.
type application struct {
	db *sql.DB
	g  *sqlite.Guard
}

func openApplication(path, synchronous string) (*application, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(60000)&_pragma=synchronous("+synchronous+")")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS artifact (id INTEGER PRIMARY KEY, token INTEGER, body TEXT)"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	g, err := sqlite.NewGuard(db, sqlite.FenceRow{Name: "artifact"}, &sqlite.GuardOptions{LockWait: testenv.Patience})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &application{db, g}, nil
}

// write checks the stamp and writes in one transaction, as the guard's
// documentation demands.
func (a *application) write(token fence.Token) error {
	ctx := context.Background()
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it may be over
	if err := a.g.Admit(ctx, tx, stampOf(token)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO artifact VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE SET token = ?1, body = ?2", int64(token), contentOf(token)); err != nil {
		return err
	}
	return tx.Commit()
}

// applicationLife writes and raises, with a checkpoint in between.
func applicationLife(tb testing.TB, r *Recorder, synchronous string) (made int) {
	tb.Helper()
	a, err := openApplication(filepath.Join(r.Top(), "app.db"), synchronous)
	if err != nil {
		tb.Fatal(err)
	}
	defer a.db.Close()
	made = r.Len()
	for token, raise := range []bool{1: false, 2: true, 3: false, 4: false} {
		if token == 0 {
			continue
		}
		r.Note(admission{fence.Token(token), raise, false})
		if raise {
			_, err = a.g.Raise(context.Background(), stampOf(fence.Token(token)))
		} else {
			err = a.write(fence.Token(token))
		}
		if err != nil {
			tb.Fatal(err)
		}
		r.Note(admission{fence.Token(token), raise, true})
		if token == 3 {
			if _, err := a.db.Exec("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return made
}

// applicationLawful compares the table and its mark with the writers' requests
// and answers.
func applicationLawful(top string, notes []any) error {
	var highest, written fence.Token // of confirmed notes
	for _, n := range notes {
		if a := n.(admission); a.told {
			highest = max(highest, a.token)
			if !a.raise {
				written = a.token
			}
		}
	}
	path := filepath.Join(top, "app.db")
	a, err := openApplication(path, "full")
	if err != nil {
		return fmt.Errorf("it cannot be opened: %w", err)
	}
	defer a.db.Close()
	var there fence.Token
	var body string
	if err := a.db.QueryRow("SELECT token, body FROM artifact").Scan(&there, &body); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	mark, err := a.g.Mark(context.Background())
	switch {
	case err != nil:
		return fmt.Errorf("the mark cannot be read: %w", err)
	case there != 0 && body != contentOf(there):
		return fmt.Errorf("the artifact is not whole: token %d, %.40q", there, body)
	case there < written:
		return fmt.Errorf("the artifact is of token %d, and the write of %d was told (law 6)", there, written)
	case mark.Token < highest || mark.Token < there:
		return fmt.Errorf("the mark is %d; token %d was admitted, and the artifact is of %d (law 3)", mark.Token, highest, there)
	}
	if mark.Token > 1 {
		if err := a.write(mark.Token - 1); !errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("a write below the mark: %w (law 3)", err)
		}
	}
	if err := a.write(mark.Token + 1); err != nil {
		return fmt.Errorf("the next write: %w", err)
	}
	return sound(path)
}

// A SQLite guard must survive every power cut if the database is synced at
// every commit. With less than that, confirmed writes are lost, and the test
// must see it.
func TestASQLiteGuardSurvivesEveryPowerCut(t *testing.T) {
	t.Parallel()
	for _, synchronous := range []string{"full", "normal", "off"} {
		t.Run(synchronous, func(t *testing.T) {
			t.Parallel()
			r := NewRecorder(testenv.Memory(t))
			if err := RecordSQLite(r); err != nil {
				t.Fatal(err)
			}
			made := applicationLife(t, r, synchronous)
			report := r.Search(t, Search{From: after(made), Draws: 2, Recent: 4, OneIn: oneIn(10), Thin: oneIn(30)}, applicationLawful)
			if synchronous != "full" {
				caught(t, "synchronous = "+strings.ToUpper(synchronous), report.Wrong)
				return
			}
			t.Log(report)
			if report.Wrong != "" {
				t.Error(report.Wrong)
			}
		})
	}
}
