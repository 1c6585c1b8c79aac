package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
)

func stampOf(token fence.Token, grant int) fence.Stamp {
	return fence.Stamp{Key: "jobs/report", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", grant))}
}

// fenceRow returns a guard in a schema of its own.
func fenceRow(tb testing.TB, o postgres.GuardOptions) *postgres.Guard {
	tb.Helper()
	o.Schema = schema()
	g, err := postgres.NewGuard(shared(tb), postgres.FenceRow{Name: "report"}, &o)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// TestAStoppedOwnersOpenTransactionKeepsNobodyOutForEver: an owner that stops
// after Admit holds the row. A raise returns ErrBusy and names the owner's
// transaction. Then the server ends the idle transaction. The raise succeeds,
// and the owner's writes are gone.
func TestAStoppedOwnersOpenTransactionKeepsNobodyOutForEver(t *testing.T) {
	t.Parallel()
	for limit := time.Second; ; limit *= 2 { // until the raise is asked for before the server ends the transaction
		if stoppedOwner(t, limit) {
			return
		}
		if limit > testenv.Patience {
			t.Fatal("the raise is told nothing while an idle transaction holds the row")
		}
	}
}

// stoppedOwner raises a fence while an owner's transaction is idle. It reports
// false if this process stood still for so long that the server may have ended
// the transaction before anybody could be told about it.
func stoppedOwner(t *testing.T, limit time.Duration) bool {
	t.Helper()
	ctx := t.Context()
	g := fenceRow(t, postgres.GuardOptions{LockWait: 50 * time.Millisecond, IdleLimit: limit})
	if _, err := g.Raise(ctx, stampOf(10, 1)); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, server.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	admitting := time.Now() // or a little later: the server counts from its answer
	if err := g.Admit(ctx, tx, stampOf(10, 1)); err != nil {
		t.Fatal(err)
	}
	// From here on the owner does nothing.
	inside := fmt.Sprint(conn.PgConn().PID())
	busy, named := false, false
	var inTime, quick bool // the first answer came while the owner was inside, and before the guard gave up looking for it
	for giveUp := time.Now().Add(testenv.Patience); ; {
		began := time.Now()
		mark, err := g.Raise(ctx, stampOf(11, 2))
		if !busy {
			inTime, quick = time.Since(admitting) < limit, time.Since(began) < time.Second
		}
		if err == nil {
			if mark.Token != 11 {
				t.Errorf("raised to %+v", mark)
			}
			break
		}
		if !errors.Is(err, guard.ErrBusy) {
			t.Fatalf("raise behind an open transaction: %v, want ErrBusy", err)
		}
		busy, named = true, named || strings.Contains(err.Error(), inside)
		if time.Now().After(giveUp) {
			t.Fatal("the raise never got through")
		}
	}
	if err := tx.Commit(ctx); err == nil {
		t.Error("the stopped owner committed after the fence was raised")
	}
	if !inTime {
		return false
	}
	if !busy {
		t.Error("the raise went past a writer that was inside")
	}
	if quick && busy && !named {
		t.Errorf("nobody was told that the process %s is inside", inside)
	}
	return true
}

// TestAdmitLeavesTheTransactionsOwnLimitsAlone: settings that the caller made
// for its transaction stay.
func TestAdmitLeavesTheTransactionsOwnLimitsAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := fenceRow(t, postgres.GuardOptions{})
	if _, err := g.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(ctx, shared(t), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '7s'; SET LOCAL idle_in_transaction_session_timeout = '9s'"); err != nil {
			return err
		}
		if err := g.Admit(ctx, tx, stampOf(10, 1)); err != nil {
			return err
		}
		var lock, idle string
		if err := tx.QueryRow(ctx, "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')").Scan(&lock, &idle); err != nil {
			return err
		}
		if lock != "7s" || idle != "9s" {
			t.Errorf("lock_timeout is %s and idle_in_transaction_session_timeout %s, the caller had set 7s and 9s", lock, idle)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestARefusalLeavesTheTransactionUsable: a caller may record the refusal in
// the same transaction.
func TestARefusalLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := fenceRow(t, postgres.GuardOptions{})
	if _, err := g.Raise(ctx, stampOf(11, 2)); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(ctx, shared(t), func(tx pgx.Tx) error {
		if err := g.Admit(ctx, tx, stampOf(10, 1)); !errors.Is(err, fence.ErrStale) {
			t.Errorf("an old owner's write: %v, want ErrStale", err)
		}
		_, err := tx.Exec(ctx, "SELECT 1")
		return err
	})
	if err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}

// TestColumnsNeedTheirOneRow: a guard that finds no row, or several, admits
// nobody.
func TestColumnsNeedTheirOneRow(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table, fresh := guarded(t)
	fresh(t)
	fresh(t)
	for _, where := range []string{"id = -1", "id > 0"} {
		g, err := postgres.NewGuard(shared(t), postgres.Columns{Table: table, Where: where}, &postgres.GuardOptions{Schema: schema()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Raise(ctx, stampOf(10, 1)); !errors.Is(err, postgres.ErrNoSuchRow) {
			t.Errorf("where %s: %v, want ErrNoSuchRow", where, err)
		}
	}
	for _, bad := range []postgres.Columns{{Table: "a;b", Where: "true"}, {Table: table}, {Table: table, Where: "id = 1", Token: "x, y"}} {
		if _, err := postgres.NewGuard(shared(t), bad, nil); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%+v: %v, want invalid", bad, err)
		}
	}
}

// TestAGuardIsOpenedByItsTarget: a holder names the target in its lease. An
// operator's takeover can open and raise it, whatever the schema and the way to
// the server.
func TestAGuardIsOpenedByItsTarget(t *testing.T) {
	t.Setenv("PGUSER", "postgres") // a target names the resource, not the user
	for _, name := range []string{schema(), postgres.DefaultSchema} {
		mine, err := postgres.NewGuard(shared(t), postgres.FenceRow{Name: "reports/daily " + schema()}, &postgres.GuardOptions{Schema: name})
		if err != nil {
			t.Fatal(err)
		}
		guardtest.ByURL(t, mine, server.url, server.url+"&schema=Bad%20Name#x", "postgres://user:hunter2@/x?retention=-1s#x")
	}
	socket, err := guard.Open(t.Context(), "postgres://ann:hunter2@/app%20x?host=/run/pg&port=5433&sslmode=disable#a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if want := "postgres:///app%20x?host=%2Frun%2Fpg&port=5433#a/b"; socket.Target() != want {
		t.Errorf("the target is %s, want %s", socket.Target(), want)
	}
	t.Setenv("PGDATABASE", "")
	usual := pool(t, "postgres://ann@db.example:5433")
	defer usual.Close()
	byDefault, err := postgres.NewGuard(usual, postgres.FenceRow{Name: "x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "postgres://db.example:5433/ann#x"; byDefault.Target() != want {
		t.Errorf("in the server's default database the target is %s, want %s", byDefault.Target(), want)
	}
}

// TestATargetThatLeadsElsewhereIsRefused: a takeover could open such a target
// by its own process's defaults, or take it for a fence row. It would raise a
// fence that keeps nobody out, and report that the fence is up.
func TestATargetThatLeadsElsewhereIsRefused(t *testing.T) {
	own := shared(t).Config().ConnConfig
	for name, value := range map[string]string{"PGHOST": own.Host, "PGPORT": fmt.Sprint(own.Port), "PGDATABASE": own.Database, "PGUSER": own.User} {
		t.Setenv(name, value)
	}
	db := stdlib.OpenDBFromPool(shared(t))
	defer db.Close()
	table, fresh := guarded(t)
	row, columns := postgres.FenceRow{Name: "elsewhere " + schema()}, postgres.Columns{Table: table, Where: "id = $1", Args: []any{fresh(t)}}
	unknown, err := postgres.NewSQLGuard(db, row, nil)
	if err != nil {
		t.Fatal(err)
	}
	there := newGuard(t, columns, postgres.GuardOptions{})
	hidden, err := postgres.NewSQLGuard(db, columns, nil)
	if err != nil {
		t.Fatal(err)
	}
	for target, says := range map[string]string{
		unknown.Target():                   "set GuardOptions.Target",
		"postgres://db.example#x":          "which server and database",
		"postgres://:5432/app?port=5433#x": "which server and database",
		there.Target():                     "the same Columns",
		hidden.Target():                    "the same Columns",
	} {
		g, err := guard.Open(t.Context(), target)
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want invalid: %s", target, err, says)
		}
		if err == nil {
			_ = g.Close()
		}
	}
	direct := newGuard(t, row, postgres.GuardOptions{})
	if _, err := direct.Rekeyed(t.Context()); err != nil { // makes the schema, which no test before this one need have done
		t.Fatal(err)
	}
	known, err := postgres.NewSQLGuard(db, row, &postgres.GuardOptions{Target: direct.Target()})
	if err != nil {
		t.Fatal(err)
	}
	guardtest.ByURL(t, known)
}
