package etcd

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestAnImpostorGetsNothing: neither a password nor a call goes to a server
// that does not prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	testenv.Impostors(t, map[string]testenv.Call{
		"a store": func(ctx context.Context, addr string) error {
			st, err := store.Open(ctx, "etcds://ann:hunter2@"+addr+"/tls")
			if err != nil {
				return err
			}
			defer st.Close()
			return one(ctx, st, claim("tls/a", "ann")).Err
		},
		"a guard": func(ctx context.Context, addr string) error {
			g, err := guard.Open(ctx, "etcds://ann:hunter2@"+addr+"/#key")
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = g.Mark(ctx)
			return err
		},
	})
}
