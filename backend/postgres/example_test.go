package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
)

// An UPDATE that counts only while its writer is the newest owner. The usual
// way is a condition:
//
//	UPDATE report SET body = $1, fence_token = $2
//	WHERE id = $3 AND fence_token < $2
//
// That refuses the owner's own second write. It cannot tell a stale owner from
// a missing row. It takes two owners with the same token for one. Admit locks
// and judges the row's mark first, in the same transaction. Its refusal says
// why.
func ExampleGuard_Admit() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `
		CREATE TABLE report (id text PRIMARY KEY, body text, fence_key text, fence_token bigint, fence_grant text, fence_seq numeric(20));
		INSERT INTO report (id) VALUES ('daily')`)
	if err != nil {
		log.Fatal(err)
	}

	g, err := postgres.NewGuard(pool, postgres.Columns{Table: "report", Where: "id = $1", Args: []any{"daily"}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	write := func(stamp fence.Stamp, body string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := g.Admit(ctx, tx, stamp); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE report SET body = $1 WHERE id = 'daily'", body)
			return err
		})
	}

	// Leases give these out: lease.Stamp().
	ann := fence.Stamp{Key: "jobs/report", Token: 1001, Grant: "0123456789abcdef0123456789abcdef"}
	bob := fence.Stamp{Key: "jobs/report", Token: 1002, Grant: "fedcba9876543210fedcba9876543210"}

	fmt.Println("ann:", write(ann, "first draft"))
	fmt.Println("ann again:", write(ann, "second draft"))
	fmt.Println("bob, who took over:", write(bob, "final"))
	var stale *fence.StaleError
	if err := write(ann, "third draft"); errors.As(err, &stale) {
		fmt.Printf("ann wakes up: refused, %d is older than %d\n", stale.Presented.Token, stale.Newest.Token)
	}
	var body string
	err = pool.QueryRow(ctx, "SELECT body FROM report WHERE id = 'daily'").Scan(&body)
	fmt.Println("the report:", body, err)
	// Output:
	// ann: <nil>
	// ann again: <nil>
	// bob, who took over: <nil>
	// ann wakes up: refused, 1001 is older than 1002
	// the report: final <nil>
}
