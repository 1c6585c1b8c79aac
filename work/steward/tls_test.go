package steward

import (
	"context"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAnImpostorGetsNothing: no effect and no signature goes to a receiver that
// does not prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	testenv.Impostors(t, map[string]testenv.Call{
		"a webhook": func(ctx context.Context, addr string) error {
			return Webhook{URL: "https://" + addr + "/hook"}.Deliver(ctx, effect(1))
		},
	})
}
