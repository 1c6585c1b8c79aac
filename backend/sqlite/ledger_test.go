package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/worktest"
)

// ledgerAt returns a harness on a file of its own.
func ledgerAt(file string, now func() time.Time, advance func(time.Duration)) worktest.Harness {
	return worktest.Harness{
		Open: func(tb testing.TB) work.Ledger {
			l, err := OpenLedger(tb.Context(), file, &Options{now: now, LockWait: testenv.Patience})
			if err != nil {
				tb.Fatal(err)
			}
			return l
		},
		Within: func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error {
			db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(30000)")
			if err != nil {
				return err
			}
			defer db.Close()
			return inTransaction(ctx, db, l.(*Ledger), do)
		},
		Damage: func(tb testing.TB, l work.Ledger, id work.ID, state work.State) {
			err := l.(*Ledger).within(tb.Context(), func(ctx context.Context, tx *ledgerTx) error {
				_, err := tx.exec(ctx, "UPDATE croft_item SET state = ?2, ttl = NULL, past = x'5b315d' WHERE id = ?1", string(id), string(state))
				return err
			})
			if err != nil {
				tb.Fatal(err)
			}
		},
		Advance:  advance,
		Slow:     true,
		Patience: testenv.Patience,
	}
}

func inTransaction(ctx context.Context, db *sql.DB, l *Ledger, do func(work.Operations) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(l.In(tx)); err != nil {
		return err
	}
	return tx.Commit()
}

// TestLedger runs the suite of ledgers, by a clock that the suite moves.
func TestLedger(t *testing.T) {
	t.Parallel()
	worktest.Run(t, func(tb testing.TB) worktest.Harness {
		clock := storetest.NewClock()
		return ledgerAt(filepath.Join(memoryDir(tb), "work.db"), clock.Now, clock.Advance)
	})
}

// TestLedgerInTheCallersDatabase runs it by the machine's own clock, beside
// other tables, through the caller's own connections.
func TestLedgerInTheCallersDatabase(t *testing.T) {
	t.Parallel()
	worktest.RunTimed(t, func(tb testing.TB) worktest.Harness {
		file := filepath.Join(memoryDir(tb), "app.db")
		db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=journal_mode(wal)&_pragma=busy_timeout(30000)&_pragma=synchronous(normal)")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { db.Close() })
		h := ledgerAt(file, nil, nil)
		h.Open = func(testing.TB) work.Ledger {
			return NewLedger(db, &Options{LockWait: testenv.Patience})
		}
		h.Within = func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error {
			return inTransaction(ctx, db, l.(*Ledger), do)
		}
		return h
	})
}
