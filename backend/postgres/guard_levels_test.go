package postgres_test

import (
	"context"
	"database/sql"
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
	"github.com/croft-dev/croft/internal/test/testenv"
)

var levels = []pgx.TxIsoLevel{pgx.ReadUncommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// resources makes a fresh resource of each form.
func resources(t *testing.T) map[string]postgres.Resource {
	table, fresh := guarded(t)
	return map[string]postgres.Resource{
		"fence row": postgres.FenceRow{Name: table},
		"columns":   postgres.Columns{Table: table, Where: "id = $1", Args: []any{fresh(t)}},
	}
}

func newGuard(t *testing.T, resource postgres.Resource, o postgres.GuardOptions) *postgres.Guard {
	t.Helper()
	g, err := postgres.NewGuard(shared(t), resource, &o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestNoLevelLetsAStaleOwnerThrough: the mark was raised while a transaction
// ran. At no isolation level is a stamp below that mark admitted, whatever the
// transaction has seen before.
func TestNoLevelLetsAStaleOwnerThrough(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	own := schema()
	for _, level := range levels {
		for form, resource := range resources(t) {
			t.Run(fmt.Sprintf("%s at %s", form, level), func(t *testing.T) {
				g := newGuard(t, resource, postgres.GuardOptions{Schema: own, LockWait: testenv.Patience})
				if _, err := g.Raise(ctx, stampOf(10, 1)); err != nil {
					t.Fatal(err)
				}
				tx, err := shared(t).BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(ctx) }()
				var n int
				if err := tx.QueryRow(ctx, "SELECT count(*) FROM pg_class").Scan(&n); err != nil { // takes the snapshot
					t.Fatal(err)
				}
				if _, err := g.Raise(ctx, stampOf(11, 2)); err != nil {
					t.Fatal(err)
				}
				err = g.Admit(ctx, tx, stampOf(10, 1))
				strict := level == pgx.RepeatableRead || level == pgx.Serializable
				switch {
				case err == nil:
					t.Error("a stale owner was admitted")
				case strict && !strings.Contains(err.Error(), "run the transaction again"):
					t.Errorf("%v; want to be told to run it again", err)
				case !strict && !errors.Is(err, fence.ErrStale):
					t.Errorf("%v, want ErrStale", err)
				}
				_ = tx.Rollback(ctx)
				// The present owner is admitted at this level.
				err = pgx.BeginTxFunc(ctx, shared(t), pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return g.Admit(ctx, tx, stampOf(12, 3)) })
				if mark, err2 := g.Mark(ctx); err != nil || err2 != nil || mark.Token != 12 {
					t.Errorf("the present owner: %v, %v; the mark is %+v", err, err2, mark)
				}
			})
		}
	}
}

// TestARaiseWaitsAtEveryDefaultLevel: a raise waits for a writer that moves the
// mark. Then it decides by the mark that the writer left, whatever the role's
// default level.
func TestARaiseWaitsAtEveryDefaultLevel(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	shared(t)
	strict := pool(t, server.url+"&default_transaction_isolation=serializable")
	defer strict.Close()
	db := stdlib.OpenDBFromPool(strict)
	defer db.Close()
	own := schema()
	for form, resource := range resources(t) {
		for _, driver := range []string{"pgx", "database/sql"} {
			t.Run(form+" through "+driver, func(t *testing.T) {
				o := &postgres.GuardOptions{Schema: own, LockWait: testenv.Patience}
				g, err := postgres.NewGuard(strict, resource, o)
				if driver != "pgx" {
					g, err = postgres.NewSQLGuard(db, resource, o)
				}
				if err != nil {
					t.Fatal(err)
				}
				writer := newGuard(t, resource, *o)
				mark, err := writer.Mark(ctx)
				if err != nil {
					t.Fatal(err)
				}
				tx, err := shared(t).Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(ctx) }()
				if err := writer.Admit(ctx, tx, stampOf(mark.Token+10, 1)); err != nil {
					t.Fatal(err)
				}
				raised := make(chan error, 1)
				go func() { _, err := g.Raise(ctx, stampOf(mark.Token+11, 2)); raised <- err }()
				testenv.Eventually(t, "the raise waits for the writer", func() error {
					if number(t, "SELECT count(*) FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid))", tx.Conn().PgConn().PID()) == 0 {
						return errors.New("not yet")
					}
					return nil
				})
				if err := tx.Commit(ctx); err != nil {
					t.Fatal(err)
				}
				if err := <-raised; err != nil {
					t.Errorf("the raise: %v", err)
				}
			})
		}
	}
}

// TestASavepointThatIsRolledBackUndoesAdmit: the mark stays where it was
// before, and the next owner is not kept out.
func TestASavepointThatIsRolledBackUndoesAdmit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	own := schema()
	for form, resource := range resources(t) {
		t.Run(form, func(t *testing.T) {
			g := newGuard(t, resource, postgres.GuardOptions{Schema: own, LockWait: time.Second})
			if _, err := g.Raise(ctx, stampOf(10, 1)); err != nil {
				t.Fatal(err)
			}
			err := pgx.BeginFunc(ctx, shared(t), func(tx pgx.Tx) error {
				undone := errors.New("undone")
				err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
					if err := g.Admit(ctx, inner, stampOf(11, 2)); err != nil {
						return err
					}
					return undone
				})
				if !errors.Is(err, undone) {
					return err
				}
				if err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return g.Admit(ctx, inner, stampOf(12, 3)) }); err != nil {
					return err
				}
				if err := g.Admit(ctx, tx, stampOf(11, 2)); !errors.Is(err, fence.ErrStale) {
					t.Errorf("below a mark that this transaction moved in a savepoint: %v, want ErrStale", err)
				}
				return nil
			})
			if mark, err2 := g.Mark(ctx); err != nil || err2 != nil || mark.Token != 12 {
				t.Errorf("%v, %v; the mark is %+v, want 12", err, err2, mark)
			}
		})
	}
}

// TestAMarkThatCannotMoveAdmitsNobody: a trigger or a policy that swallows the
// update would leave the old owner's mark in place.
func TestAMarkThatCannotMoveAdmitsNobody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table, fresh := guarded(t)
	id := fresh(t)
	exec(t, fmt.Sprintf(`CREATE FUNCTION swallow_%[1]s() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER swallow BEFORE UPDATE ON %[1]s FOR EACH ROW EXECUTE FUNCTION swallow_%[1]s()`, table))
	g := newGuard(t, postgres.Columns{Table: table, Where: "id = $1", Args: []any{id}}, postgres.GuardOptions{})
	db := stdlib.OpenDBFromPool(shared(t))
	defer db.Close()
	plain, err := postgres.NewSQLGuard(db, postgres.Columns{Table: table, Where: "id = $1", Args: []any{id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(ctx, shared(t), func(tx pgx.Tx) error { return g.Admit(ctx, tx, stampOf(10, 1)) }); !errors.Is(err, postgres.ErrNoSuchRow) {
		t.Errorf("pgx: %v, want an error", err)
	}
	if err := inSQL(ctx, db, func(tx *sql.Tx) error { return plain.AdmitSQL(ctx, tx, stampOf(10, 1)) }); !errors.Is(err, postgres.ErrNoSuchRow) {
		t.Errorf("database/sql: %v, want an error", err)
	}
}

// TestAnImpossibleRowAdmitsNobody: another program may have written it.
func TestAnImpossibleRowAdmitsNobody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table, fresh := guarded(t)
	id := fresh(t)
	g := newGuard(t, postgres.Columns{Table: table, Where: "id = $1", Args: []any{id}}, postgres.GuardOptions{})
	for _, planted := range []string{"fence_token = -5", "fence_token = 9007199254740992", "fence_key = 'a//b'", "fence_grant = 'nobody'"} {
		exec(t, "UPDATE "+table+" SET fence_key = 'jobs/report', fence_token = 10, fence_grant = '', fence_seq = 0")
		exec(t, "UPDATE "+table+" SET "+planted)
		if _, err := g.Mark(ctx); !errors.Is(err, postgres.ErrDamaged) {
			t.Errorf("%s: a look: %v, want ErrDamaged", planted, err)
		}
		if err := pgx.BeginFunc(ctx, shared(t), func(tx pgx.Tx) error { return g.Admit(ctx, tx, stampOf(20, 1)) }); !errors.Is(err, postgres.ErrDamaged) {
			t.Errorf("%s: a write: %v, want ErrDamaged", planted, err)
		}
	}
}

// TestAdmitNeedsNoSecondConnection: every connection of the pool may be busy
// with a transaction.
func TestAdmitNeedsNoSecondConnection(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	own := schema()
	for form, resource := range resources(t) {
		if _, err := newGuard(t, postgres.FenceRow{Name: "makes/the/schema"}, postgres.GuardOptions{Schema: own}).Raise(ctx, stampOf(1, 1)); err != nil {
			t.Fatal(err)
		}
		p := pool(t, server.url+"&pool_max_conns=1")
		g, err := postgres.NewGuard(p, resource, &postgres.GuardOptions{Schema: own})
		if err != nil {
			t.Fatal(err)
		}
		if err := pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error { return g.Admit(ctx, tx, stampOf(10, 1)) }); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		p.Close()
	}
}

// TestColumnsNeedNoSchemaOfCroft: a role that may not create anything guards a
// row of its own table.
func TestColumnsNeedNoSchemaOfCroft(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pg := testenv.Postgres(t)
	url := pg.Database(t)
	database := strings.TrimPrefix(mustParse(t, url).Path, "/")
	role := "owner_" + database
	pg.Query(t, database, "CREATE ROLE "+role+" LOGIN; CREATE TABLE report (id int, fence_key text, fence_token bigint, fence_grant text, fence_seq numeric(20)); INSERT INTO report VALUES (1); GRANT SELECT, UPDATE ON report TO "+role)
	p := pool(t, strings.Replace(url, "postgres://postgres@", "postgres://"+role+"@", 1))
	defer p.Close()
	g, err := postgres.NewGuard(p, postgres.Columns{Table: "public.report", Where: "id = 1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error { return g.Admit(ctx, tx, stampOf(10, 1)) }); err != nil {
		t.Errorf("Admit: %v", err)
	}
	if mark, err := g.Raise(ctx, stampOf(11, 2)); err != nil || mark.Token != 11 {
		t.Errorf("Raise: %+v, %v", mark, err)
	}
	if _, err := g.Rekey(ctx, "other", "ann", "why"); err == nil || !strings.Contains(err.Error(), "croft schema postgres") {
		t.Errorf("Rekey, which keeps its books in the schema: %v; want what to do", err)
	}
}

var _ guard.Guard = (*postgres.Guard)(nil)
