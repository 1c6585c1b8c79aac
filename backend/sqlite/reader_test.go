package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAReaderThatDoesNotEndIsFound keeps a read transaction open, so that the
// log cannot be copied back. Leases go on, and the doctor names the reader.
// After the reader has gone, the log is used again from its beginning and cut
// back.
func TestAReaderThatDoesNotEndIsFound(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, &Options{SweepEvery: -1})
	defer st.Close()
	execute(t, file, "CREATE TABLE scratch (v BLOB)")
	examined := func() store.Finding {
		t.Helper()
		return st.examineLog(t.Context(), st.base)[0] // the other checks would read every page
	}
	log := func() int64 {
		info, err := os.Stat(file + "-wal")
		must(t, err)
		return info.Size()
	}

	db, err := connections(file, 0)
	must(t, err)
	defer db.Close()
	reader, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	var n int
	must(t, reader.QueryRow("SELECT count(*) FROM croft_lease").Scan(&n))
	execute(t, file, "INSERT INTO scratch VALUES (randomblob(20 << 20))")
	term(t, st, "k")
	if log() < 20<<20 {
		t.Fatalf("the log has %d bytes: the reader keeps nothing from being copied, and the test shows nothing", log())
	}
	found := examined()
	if found.Level != store.Warn || !strings.Contains(found.Seen, "still reads") || found.Advice == "" {
		t.Errorf("the doctor finds %+v", found)
	}
	if _, err := os.Stat("/proc/locks"); err == nil {
		// The kernel's list of locks lacks lines while many locks come and go.
		testenv.Eventually(t, "the reader's name", func() error {
			if found := examined(); !strings.Contains(found.Seen, "this very process") {
				return fmt.Errorf("the doctor does not say who it is: %s", found.Seen)
			}
			return nil
		})
	}

	must(t, reader.Rollback())
	term(t, st, "k") // the first of these copies the whole log back, the next begins it anew
	term(t, st, "k")
	if found := examined(); found.Level != store.OK {
		t.Errorf("the reader has gone, and the doctor finds %+v", found)
	}
	if log() > 16<<20 {
		t.Errorf("the reader has gone, and the log still has %d bytes", log())
	}
}

// TestSweepingKeepsNobodyOutForAReader keeps a read transaction open, so that
// copying the log back cannot end. The sweep must not keep writers out while it
// waits.
func TestSweepingKeepsNobodyOutForAReader(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, &Options{SweepEvery: -1, LockWait: 2 * testenv.Patience})
	defer st.Close()
	term(t, st, "k")
	db, err := connections(file, 0)
	must(t, err)
	defer db.Close()
	reader, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	var n int
	must(t, reader.QueryRow("SELECT count(*) FROM croft_lease").Scan(&n))
	term(t, st, "k")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if _, err := st.Sweep(ctx); err != nil {
		t.Errorf("sweeping: %v", err)
	}
	must(t, reader.Rollback())
	// Connections that have swept must still wait for others.
	for range 4 {
		var wait int
		must(t, st.base.db.QueryRow("PRAGMA busy_timeout").Scan(&wait))
		if int64(wait) != st.options.LockWait.Milliseconds() {
			t.Errorf("a connection waits %d ms", wait)
		}
	}
}

// TestReadingNeverStaysOpen checks that the log can be emptied in the middle of
// a listing, and during a watch.
func TestReadingNeverStaysOpen(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	var batch []tenure.Request
	for i := range 2 * page {
		batch = append(batch, acquire(fmt.Sprintf("k/%d", i), "ann"))
	}
	for _, a := range st.Apply(t.Context(), batch) {
		must(t, a.Err)
	}
	seen := 0
	for _, err := range st.List(t.Context(), "") {
		must(t, err)
		if seen++; seen%page == 1 {
			must(t, one(st, acquire(fmt.Sprintf("new/%d", seen), "ann")).Err)
			var busy, pages, copied int
			if query(t, file, "PRAGMA wal_checkpoint(TRUNCATE)", &busy, &pages, &copied); busy != 0 {
				t.Fatalf("after %d records somebody still reads", seen)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := st.Watch(ctx, "k/1")
	must(t, err)
	must(t, one(st, acquire("another", "ann")).Err)
	var busy, pages, copied int
	if query(t, file, "PRAGMA wal_checkpoint(TRUNCATE)", &busy, &pages, &copied); busy != 0 {
		t.Error("a watch keeps the log from being emptied")
	}
}
