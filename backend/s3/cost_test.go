package s3

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// claim makes a request for a lease that is longer than any test takes, even on
// a busy machine.
func claim(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Hour}
}

// then makes another request of the same grant.
func then(verb tenure.Verb, mine tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: mine.Key, Secret: mine.Secret, Progress: "half"}
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// TestRequestsOfEveryOperation: it counts them, because they cost money.
func TestRequestsOfEveryOperation(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g := newGateway(t, server)
	st := open(t, server, g.client(server), Options{})
	ctx := t.Context()
	costs := func(what string, most int, do func() error) {
		t.Helper()
		g.requests()
		err := do()
		if asked := g.requests(); err != nil || len(asked) > most {
			t.Errorf("%s: %d requests, want at most %d: %q (%v)", what, len(asked), most, asked, err)
		}
	}
	apply := func(req tenure.Request) func() error { return func() error { return one(ctx, st, req).Err } }
	mine := claim("cost/k", "ann")
	costs("acquire of a free key", 2, apply(mine))
	costs("renew", 1, apply(then(tenure.Renew, mine)))
	costs("report", 1, apply(then(tenure.Report, mine)))
	costs("refused", 1, func() error {
		if err := one(ctx, st, claim(mine.Key, "bob")).Err; !errors.Is(err, tenure.ErrHeld) {
			return errors.New("not refused")
		}
		return nil
	})
	costs("renew after a refusal", 1, apply(then(tenure.Renew, mine)))
	costs("release", 1, apply(then(tenure.Release, mine)))
	again := claim(mine.Key, "ann")
	costs("acquire of what was released here", 1, apply(again))
	other := open(t, server, g.client(server), Options{})
	costs("renew by another process", 2, func() error { return one(ctx, other, then(tenure.Renew, again)).Err })
	costs("renew after another process", 3, apply(then(tenure.Renew, again)))
	costs("release", 1, apply(then(tenure.Release, again)))
	costs("acquire of what another released", 2, func() error { return one(ctx, other, claim(mine.Key, "bob")).Err })
	costs("get", 1, func() error { _, err := st.Get(ctx, mine.Key); return err })
	costs("the time", 1, func() error { _, err := st.Now(ctx); return err })
	costs("a listing of one", 2, func() error { return listing(ctx, st) })
	costs("the same listing", 1, func() error { return listing(ctx, st) })
	costs("a sweep of what is not old", 3, func() error { _, err := st.Sweep(ctx); return err })

	guard := openGuard(t, server, g.client(server), objectName(server))
	costs("the first guarded write", 6, func() error { return write(ctx, guard, stamp(10, 1, 0), "one") })
	costs("a guarded write", 6, func() error { return write(ctx, guard, stamp(10, 1, 0), "two") })
	costs("a raise", 2, func() error { _, err := guard.Raise(ctx, stamp(11, 2, 0)); return err })
	costs("the same raise", 1, func() error { _, err := guard.Raise(ctx, stamp(11, 2, 0)); return err })
	costs("a refused write", 1, func() error {
		if err := write(ctx, guard, stamp(10, 1, 0), "late"); err == nil {
			return errors.New("not refused")
		}
		return nil
	})
	costs("a read", 2, func() error { _, _, err := content(ctx, guard); return err })
}

func listing(ctx context.Context, st store.Store) error {
	for _, err := range st.List(ctx, "") {
		if err != nil {
			return err
		}
	}
	return nil
}
