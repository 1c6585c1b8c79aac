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
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard/guardtest"
)

// guarded makes the table that the tests guard: one row for each resource.
func guarded(tb testing.TB) (table string, fresh func(tb testing.TB) int64) {
	p := shared(tb)
	table = "report_" + schema()
	if _, err := p.Exec(context.Background(), fmt.Sprintf(
		`CREATE TABLE %s (id bigserial PRIMARY KEY, body bytea, fence_key text, fence_token bigint, fence_grant text, fence_seq numeric(20))`, table)); err != nil {
		tb.Fatal(err)
	}
	return table, func(tb testing.TB) (id int64) {
		if err := p.QueryRow(context.Background(), "INSERT INTO "+table+" DEFAULT VALUES RETURNING id").Scan(&id); err != nil {
			tb.Fatal(err)
		}
		return id
	}
}

// TestGuardConformance holds both forms of the guard, through both drivers, to
// the law of writing. One of these pairs runs the suite in full, the others run
// every check with fewer rounds.
func TestGuardConformance(t *testing.T) {
	t.Parallel()
	for _, pair := range []string{"columns through pgx", "columns through database/sql", "fence table through pgx", "fence table through database/sql"} {
		form, driver, _ := strings.Cut(pair, " through ")
		t.Run(pair, func(t *testing.T) {
			t.Parallel()
			p := shared(t)
			table, fresh := guarded(t)
			own := schema()
			if form == "columns" {
				own = postgres.DefaultSchema
			}
			less := form != "columns" || driver != "pgx"
			guardtest.Run(t, guardtest.Harness{Large: 1 << 20, SideBySide: true, Slow: less, Make: func(t testing.TB) guardtest.Resource {
				id := fresh(t)
				var resource postgres.Resource = postgres.FenceRow{Name: fmt.Sprintf("%s/%d", table, id)}
				if form == "columns" {
					resource = postgres.Columns{Table: table, Where: "id = $1", Args: []any{id}}
				}
				o := &postgres.GuardOptions{Schema: own, LockWait: 30 * time.Second}
				open := func(t testing.TB, keys *signed.Keys) guardtest.Handle {
					o := *o
					o.Keys = keys
					g, err := postgres.NewGuard(p, resource, &o)
					if err != nil {
						t.Fatal(err)
					}
					if driver == "pgx" {
						return handle(g, func(ctx context.Context, stamp fence.Stamp, payload []byte) error {
							return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
								if err := g.Admit(ctx, tx, stamp); err != nil {
									return err
								}
								_, err := tx.Exec(ctx, "UPDATE "+table+" SET body = $2 WHERE id = $1", id, payload)
								return err
							})
						})
					}
					if _, err := g.Rekeyed(t.Context()); err != nil { // makes the schema
						t.Fatal(err)
					}
					db := stdlib.OpenDBFromPool(p)
					t.Cleanup(func() { _ = db.Close() })
					if g, err = postgres.NewSQLGuard(db, resource, &o); err != nil {
						t.Fatal(err)
					}
					return handle(g, func(ctx context.Context, stamp fence.Stamp, payload []byte) error {
						return inSQL(ctx, db, func(tx *sql.Tx) error {
							if err := g.AdmitSQL(ctx, tx, stamp); err != nil {
								return err
							}
							_, err := tx.ExecContext(ctx, "UPDATE "+table+" SET body = $2 WHERE id = $1", id, payload)
							return err
						})
					})
				}
				return guardtest.Resource{
					Open:   func(t testing.TB) guardtest.Handle { return open(t, nil) },
					Signed: open,
					Read: func(ctx context.Context) (body []byte, written bool, err error) {
						err = p.QueryRow(ctx, "SELECT body, body IS NOT NULL FROM "+table+" WHERE id = $1", id).Scan(&body, &written)
						return body, written, err
					},
				}
			}})
		})
	}
}

func handle(g *postgres.Guard, write func(ctx context.Context, stamp fence.Stamp, payload []byte) error) guardtest.Handle {
	return guardtest.Handle{Guard: g, Write: write}
}

func inSQL(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
