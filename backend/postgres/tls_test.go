package postgres_test

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAnImpostorGetsNothing: with sslmode=verify-full neither a password nor a
// statement goes to a server that does not prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	// Without sslrootcert a file in the user's home would count.
	const verify = "/croft?sslmode=verify-full&sslrootcert=system"
	testenv.Impostors(t, map[string]testenv.Call{
		"a store": func(ctx context.Context, addr string) error {
			st, err := postgres.Open(ctx, "postgres://ann:hunter2@"+addr+verify)
			if err != nil {
				return err
			}
			defer st.Close()
			return one(ctx, st, claim("tls/a", "ann")).Err
		},
		"a guard": func(ctx context.Context, addr string) error {
			g, err := guard.Open(ctx, "postgres://ann:hunter2@"+addr+verify+"#row")
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = g.Mark(ctx)
			return err
		},
	})
}
