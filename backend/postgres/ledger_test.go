package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/worktest"
)

// ledgerPlace returns an empty ledger. Its clock is the test's, or the
// server's.
func ledgerPlace(own lot, now func() time.Time, advance func(time.Duration)) worktest.Harness {
	p, name := own.pool, own.name
	return worktest.Harness{
		Open: func(tb testing.TB) work.Ledger {
			return postgres.NewLedger(p, postgres.LedgerAt(now, &postgres.LedgerOptions{Schema: name, LockWait: testenv.Patience}))
		},
		Within: func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error {
			return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error { return do(l.(*postgres.Ledger).In(tx)) })
		},
		Damage: func(tb testing.TB, _ work.Ledger, id work.ID, state work.State) {
			if _, err := p.Exec(tb.Context(), "UPDATE "+name+".item SET state = $2, ttl = NULL, past = '[1]' WHERE id = $1::text::uuid", string(id), string(state)); err != nil {
				tb.Fatal(err)
			}
		},
		Advance:  advance,
		Slow:     true,
		Patience: testenv.Patience,
	}
}

// TestLedger: the ledger keeps every promise of the contract, by a clock that
// the suite moves.
func TestLedger(t *testing.T) {
	t.Parallel()
	worktest.Run(t, func(tb testing.TB) worktest.Harness {
		clock := storetest.NewClock()
		return ledgerPlace(empty(tb), clock.Now, clock.Advance)
	})
}

// TestLedgerByTheServersClock: the ledger keeps them by the server's own clock,
// inside transactions of database/sql.
func TestLedgerByTheServersClock(t *testing.T) {
	t.Parallel()
	worktest.RunTimed(t, func(tb testing.TB) worktest.Harness {
		own := empty(tb)
		db := stdlib.OpenDBFromPool(own.pool)
		tb.Cleanup(func() { _ = db.Close() })
		h := ledgerPlace(own, nil, nil)
		h.Within = func(ctx context.Context, l work.Ledger, do func(work.Operations) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := do(l.(*postgres.Ledger).InSQL(tx)); err != nil {
				return err
			}
			return tx.Commit()
		}
		return h
	})
}

func wipeLedger(schema string) string {
	return strings.ReplaceAll("; DELETE FROM s.item; DELETE FROM s.effect; DELETE FROM s.dispatcher; DELETE FROM s.refusal; DELETE FROM s.idle; DELETE FROM s.rule; DELETE FROM s.start; DELETE FROM s.partition", "s.", schema+".")
}
