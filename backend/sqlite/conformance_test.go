package sqlite

import (
	"cmp"
	"database/sql"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
)

// at returns a harness on a file of its own.
func at(tb testing.TB, file string, now func() time.Time, advance func(time.Duration)) storetest.Harness {
	return storetest.Harness{
		Open: func(tb testing.TB, o storetest.Options) store.Store {
			return open(tb, file, &Options{Retention: o.Retention, now: now, LockWait: testenv.Patience})
		},
		Wipe:    func(tb testing.TB) { execute(tb, file, "DELETE FROM croft_lease") },
		Advance: advance,
		Slow:    true,
	}
}

// execute changes a file behind the store's back.
func execute(tb testing.TB, file, text string) {
	tb.Helper()
	db, err := connections(file, testenv.Patience)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(tb.Context(), text); err != nil {
		tb.Fatal(err)
	}
}

// open opens a store that waits for the lock as long as it takes, unless the
// test sets LockWait. The default of 2 seconds is too short on a busy machine:
// the process that holds the lock may not run for longer than that.
func open(tb testing.TB, file string, o *Options) *Store {
	tb.Helper()
	var with Options
	if o != nil {
		with = *o
	}
	with.LockWait = cmp.Or(with.LockWait, testenv.Patience)
	st, err := Open(tb.Context(), file, &with)
	if err != nil {
		tb.Fatal(err)
	}
	return st
}

// full asks for the longer runs of make proof.
var full = flag.Bool("all", false, "the largest crowds: 50 processes, 20,000 keys")

// many returns how often a test repeats something: with -all, without it, and
// with -short.
func many(all, some, short int) int {
	switch {
	case *full:
		return all
	case testing.Short():
		return short
	}
	return some
}

// TestConformance runs the parts of the suite that concern time, by the
// machine's own clock.
func TestConformance(t *testing.T) {
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness {
		return at(tb, filepath.Join(memoryDir(tb), "croft.db"), nil, nil)
	})
}

// TestConformanceUnderASetClock runs the whole suite of lease stores, with a
// clock that goes to the very edges of deadlines.
func TestConformanceUnderASetClock(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		return at(tb, filepath.Join(memoryDir(tb), "croft.db"), clock.Now, clock.Advance)
	})
}

// TestConformanceInTheCallersDatabase runs the suite beside other tables,
// through the caller's own connections.
func TestConformanceInTheCallersDatabase(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		file := filepath.Join(memoryDir(tb), "app.db")
		db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(60000)&_pragma=synchronous(normal)")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { db.Close() })
		if _, err := db.Exec("CREATE TABLE invoice (id INTEGER PRIMARY KEY)"); err != nil {
			tb.Fatal(err)
		}
		h := at(tb, file, clock.Now, clock.Advance)
		h.Open = func(_ testing.TB, o storetest.Options) store.Store {
			return New(db, &Options{Retention: o.Retention, now: clock.Now, LockWait: testenv.Patience})
		}
		return h
	})
}
