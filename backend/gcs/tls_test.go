package gcs

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAnImpostorGetsNothing: no bearer token and no request goes to a server
// that does not prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	connection := func(addr string) Connection {
		return Connection{Endpoint: "https://" + addr, Credentials: hunter2()}
	}
	testenv.Impostors(t, map[string]testenv.Call{
		"a store": func(ctx context.Context, addr string) error {
			st, err := Open(ctx, "bucket", "leases", &Options{Connection: connection(addr)})
			if err == nil {
				_ = st.Close()
			}
			return err
		},
		"a guard": func(ctx context.Context, addr string) error {
			g, err := OpenGuard(ctx, "bucket", "object", &GuardOptions{Connection: connection(addr)})
			if err != nil {
				return err
			}
			_, err = g.Mark(ctx)
			return err
		},
	})
}
