package s3

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestAnImpostorGetsNothing: no signed request goes to a server that does not
// prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "croft")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	t.Setenv("AWS_CA_BUNDLE", "") // the SDK would trust only that file
	testenv.Impostors(t, map[string]testenv.Call{
		"a store": func(ctx context.Context, addr string) error {
			st, err := store.Open(ctx, "s3://bucket/leases?endpoint=https://"+addr)
			if err == nil {
				_ = st.Close()
			}
			return err
		},
		"a guard": func(ctx context.Context, addr string) error {
			g, err := guard.Open(ctx, "s3://bucket/object?endpoint=https://"+addr)
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = g.Mark(ctx)
			return err
		},
	})
}
