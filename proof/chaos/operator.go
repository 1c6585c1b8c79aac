package chaos

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/guard"
)

// scheme is the URL scheme of the guards' targets in records. An operator opens
// such a target with its own worker, so its own history has the raises.
const scheme = "chaos"

// named gives a guard a target that is the same in all processes of a run.
// Close does nothing: the resource closes its guard.
type named struct {
	guard.Guard
	target string
}

func (n named) Target() string { return n.target }
func (n named) Close() error   { return nil }

// guard returns the guard of a key's resource, with its raises recorded.
func (w *worker) guard(n int) guard.Guard {
	return w.rec.NewGuard(named{w.resources[n].guard(), fmt.Sprintf("%s://resources/%d", scheme, n)})
}

// guards registers the guards of all resources under scheme, as the command
// line does for all backends.
func (w *worker) guards() {
	guard.Register(scheme, func(_ context.Context, u *url.URL) (guard.Guard, error) {
		n, err := strconv.Atoi(u.Path[1:])
		if err != nil || n < 0 || n >= len(w.resources) {
			return nil, fmt.Errorf("there is no resource %s", u.Path)
		}
		return w.guard(n), nil
	})
}

// act does one operator's act on a key, held or free. It makes the calls that
// the command line's takeover, reserve and revoke make.
func (w *worker) act(ctx context.Context) {
	n := w.random.IntN(w.Keys)
	allowed, err := guard.Allow(scheme + "://resources")
	if err != nil {
		panic(err)
	}
	h := croft.ByHand{Note: "chaos", TTL: w.TTL, Raise: allowed}
	switch w.random.IntN(3) {
	case 0:
		if t, _ := w.client.Takeover(ctx, key(n), h); t != nil {
			w.stepIn(ctx, t, n)
		}
	case 1:
		// The history has the outcome, here and below.
		_, _ = w.client.Reserve(ctx, key(n), owner(w.random.IntN(w.Clients)), h)
	default:
		_, _ = w.client.Revoke(ctx, key(n), h)
	}
	w.rest(w.TTL)
}

// stepIn writes like a holder, and then releases the key or lets it lapse. If
// the fence is not up, an operator must not even read: the old holder may still
// write.
func (w *worker) stepIn(ctx context.Context, t *croft.Transfer, n int) {
	fenced := len(t.Raised) > 0 && !slices.ContainsFunc(t.Raised, func(r croft.Raise) bool { return r.Err != nil })
	if fenced || !w.Guarded {
		stamp := t.Deed.Stamp()
		stamp.Seq = 1
		w.update(stamp, w.resources[n], func() {})
	}
	if w.random.IntN(2) == 0 {
		_, _ = w.client.Release(context.WithoutCancel(ctx), t.Deed, false)
	}
}
