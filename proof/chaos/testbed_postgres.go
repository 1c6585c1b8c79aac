package chaos

import (
	"context"
	"errors"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// testbedPostgres is one database for leases and resources.
func testbedPostgres(ctx context.Context, s *stand) (*testbed, error) {
	db := testenv.NewPostgres(s)
	direct, err := url.Parse(db.Database(s))
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, direct.String())
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, queries.Must("make_postgres"))
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, err
	}
	return &testbed{
		stand: s, hosts: []string{db.Addr()},
		urls: func(hosts []string) (string, string) {
			u := *direct
			u.Host = hosts[0]
			return u.String(), u.String()
		},
		servers: []server{{name: "PostgreSQL", kill: func() { db.Kill(s) }, restart: func() { db.Start(s) }}},
	}, nil
}
