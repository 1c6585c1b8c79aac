package httpfence

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAnImpostorGetsNothing: no read and no write goes to a service that does
// not prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	through := func(method string) testenv.Call {
		return func(ctx context.Context, addr string) error {
			_, front := newWorld().proxyTo(t, "one", "https://"+addr, nil)
			req, err := http.NewRequestWithContext(ctx, method, front.URL+"/r/1", http.NoBody)
			if err != nil {
				return err
			}
			SetStamp(req.Header, newer)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", resp.Status, text)
			}
			return err
		}
	}
	testenv.Impostors(t, map[string]testenv.Call{"a read": through("GET"), "a write": through("PUT")})
}
