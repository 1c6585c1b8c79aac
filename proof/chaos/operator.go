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

// scheme is that of the targets by which records name the guards of places. An operator finds the guard behind one by its own way, so that what it raises is in its own history.
const scheme = "chaos"

// named is a guard under a name that holds for all processes of a run. The place that it belongs to closes it.
type named struct {
	guard.Guard
	target string
}

func (n named) Target() string { return n.target }
func (n named) Close() error   { return nil }

// guard is the guard of a key's place, whose raises are recorded.
func (w *worker) guard(n int) guard.Guard {
	return w.rec.NewGuard(named{w.places[n].guard(), fmt.Sprintf("%s://place/%d", scheme, n)})
}

// guards makes the guards of all places known by their names, as the command line has those of all backends.
func (w *worker) guards() {
	guard.Register(scheme, func(_ context.Context, u *url.URL) (guard.Guard, error) {
		n, err := strconv.Atoi(u.Path[1:])
		if err != nil || n < 0 || n >= len(w.places) {
			return nil, fmt.Errorf("there is no place %s", u.Path)
		}
		return w.guard(n), nil
	})
}

// act does something to a key by hand, by what the command line's takeover and revoke use, whoever has it and whatever they are doing.
func (w *worker) act(ctx context.Context) {
	n := w.random.IntN(w.Keys)
	allowed, err := guard.Allow(scheme + "://place")
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
		// what came of it is in the history, as below
		_, _ = w.client.Reserve(ctx, key(n), owner(w.random.IntN(w.Clients)), h)
	default:
		_, _ = w.client.Revoke(ctx, key(n), h)
	}
	w.rest(w.TTL)
}

// stepIn does what the holder did, and gives the key back or leaves it to lapse. Where the fence is not up an operator must not read, let alone write: the holder may still.
func (w *worker) stepIn(ctx context.Context, t *croft.Transfer, n int) {
	fenced := len(t.Raised) > 0 && !slices.ContainsFunc(t.Raised, func(r croft.Raise) bool { return r.Err != nil })
	if fenced || !w.Guarded {
		stamp := t.Deed.Stamp()
		stamp.Seq = 1
		w.update(stamp, w.places[n], func() {})
	}
	if w.random.IntN(2) == 0 {
		_, _ = w.client.Release(context.WithoutCancel(ctx), t.Deed, false)
	}
}
