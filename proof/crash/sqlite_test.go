//go:build linux || darwin

package crash

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/croft-dev/croft/backend/sqlite" // sets inject.SQLite
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

func newSQLiteRun(tb testing.TB) *client {
	tb.Helper()
	r := NewRecorder(testenv.Memory(tb))
	if err := RecordSQLite(r); err != nil {
		tb.Fatal(err)
	}
	return &client{tb, r, storetest.NewClock()}
}

const sqliteName = "croft.db"

func sqliteStore(path string, now func() time.Time) (store.Store, error) {
	return inject.SQLite(context.Background(), path, testenv.Patience, now)
}

// sqliteLife records a store: terms of two keys with a checkpoint in between,
// and the end of the last connection, which copies the log back and removes it.
// It returns the step at which the tables were complete.
func sqliteLife(c *client) (made int) {
	c.Helper()
	path := filepath.Join(c.rec.Top(), sqliteName)
	for round := range 2 {
		st, err := sqliteStore(path, c.clock.Now)
		if err != nil {
			c.Fatal(err)
		}
		if round == 0 {
			made = c.rec.Len()
		}
		a := acquire("job/a", "ann")
		c.ask(st, a)
		c.ask(st, acquire(fmt.Sprintf("job/%d", round), "ann"))
		if round == 0 {
			execute(c, "file:"+path, "PRAGMA wal_checkpoint(PASSIVE)")
		}
		c.ask(st, then(tenure.Renew, a))
		c.ask(st, then(tenure.Checkpoint, a))
		c.ask(st, then(tenure.Release, a))
		c.ask(st, takeover(fmt.Sprintf("job/%d", round)))
		if err := st.Close(); err != nil {
			c.Fatal(err)
		}
	}
	return made
}

func execute(tb testing.TB, dsn, text string) {
	tb.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		tb.Fatal(err)
	}
}

// sqliteLawful opens the database that a cut left, and lets SQLite check its
// integrity.
func sqliteLawful(top string, notes []any) error {
	path := filepath.Join(top, sqliteName)
	if err := lawful(func(now func() time.Time) (store.Store, error) { return sqliteStore(path, now) }, notes); err != nil {
		return err
	}
	return sound(path)
}

func sound(path string) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		return fmt.Errorf("integrity_check: %s, %w", verdict, err)
	}
	return nil
}

// A SQLite store must survive a power cut after any step.
func TestASQLiteStoreSurvivesEveryPowerCut(t *testing.T) {
	t.Parallel()
	c := newSQLiteRun(t)
	made := sqliteLife(c)
	report := c.rec.Search(t, Search{From: after(made), Draws: 2, Recent: 4, OneIn: oneIn(4), Thin: oneIn(12)}, sqliteLawful)
	t.Log(report)
	if report.Wrong != "" {
		t.Error(report.Wrong)
	}
}

// The store needs synchronous = FULL. These broken disks lose some of its
// syncs.
func TestBrokenSQLiteStoresAreCaught(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]func(rel string) bool{
		"as if synchronous were OFF":    func(string) bool { return true },
		"as if synchronous were NORMAL": func(rel string) bool { return strings.HasSuffix(rel, "-wal") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSQLiteRun(t)
			c.rec.loses = loses
			made := sqliteLife(c)
			caught(t, name, c.rec.Search(t, Search{From: after(made), Draws: 2, Recent: 4, OneIn: oneIn(4), Thin: oneIn(12)}, sqliteLawful).Wrong)
		})
	}
}
