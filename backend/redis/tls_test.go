package redis

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestAnImpostorGetsNothing checks that neither a password nor a command goes
// to a server that does not prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	ask := func(query string) testenv.Call {
		return func(ctx context.Context, addr string) error {
			st, err := store.Open(ctx, "rediss://ann:hunter2@"+addr+"/"+query)
			if err != nil {
				return err
			}
			defer st.Close()
			return one(ctx, st, claim("tls/a", "ann")).Err
		}
	}
	testenv.Impostors(t, map[string]testenv.Call{
		"a store":              ask(""),
		"a store in a cluster": ask("?cluster=true"),
		"a guard": func(ctx context.Context, addr string) error {
			g, err := guard.Open(ctx, "rediss://ann:hunter2@"+addr+"/0#value")
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = g.Mark(ctx)
			return err
		},
	})
}
