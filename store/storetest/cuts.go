package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// CutAfterRequest tries law 6 with connections that really break. It sends
// every verb through far. The server carries it out, and the reply is lost.
// Then it asks again, and the answer must be what the server has done.
//
// near is another handle on the same place. Its connections never break. lose
// calls do, and makes sure that its reply is lost: it breaks far's connections
// only after arrived has returned nil, which means that the server has carried
// out the request.
//
// The suite breaks no real connections, so a store with a server should also
// pass this check.
func CutAfterRequest(tb testing.TB, far, near store.Store, lose func(do func(), arrived func() error)) {
	tb.Helper()
	ctx := tb.Context()
	mine := acquire("cut/reply", "ann")
	for _, req := range []tenure.Request{mine, renew(mine), report(mine, "half"), release(mine), takeover(mine.Key)} {
		warm(tb, far)
		before, err := near.Get(ctx, mine.Key)
		if err != nil {
			tb.Fatal(err)
		}
		var done tenure.Record
		var a store.Answer
		lose(func() { a = far.Apply(ctx, []tenure.Request{req})[0] }, func() error {
			if done, err = near.Get(ctx, mine.Key); err == nil && differ(before, done, wholeHistory) == "" {
				err = errors.New("not yet")
			}
			return err
		})
		if !errors.Is(a.Err, store.ErrUnknown) || !a.Record.IsZero() {
			tb.Fatalf("law 6: %s whose reply was lost: %v, %+v; want unknown", req.Verb, a.Err, a.Record)
		}
		again := Resolve(ctx, far, req)
		if again.Err != nil || again.Record.Token != done.Token || again.Record.Terms != done.Terms ||
			again.Record.State != done.State {
			tb.Fatalf("law 6: %s again: %v, token %d in term %d (%s); the server had token %d in term %d (%s)",
				req.Verb, again.Err, again.Record.Token, again.Record.Terms, again.Record.State,
				done.Token, done.Terms, done.State)
		}
	}
}

// CutBeforeRequest tries law 6 with a request that does not reach the server.
// The request leaves nothing, and is granted when it is sent again. lose calls
// do and loses its requests.
func CutBeforeRequest(tb testing.TB, far, near store.Store, lose func(do func())) {
	tb.Helper()
	ctx := tb.Context()
	mine := acquire("cut/request", "ann")
	warm(tb, far)
	lose(func() {
		if a := far.Apply(ctx, []tenure.Request{mine})[0]; !errors.Is(a.Err, store.ErrUnknown) {
			tb.Fatalf("law 6: a request that was lost: %v, want unknown", a.Err)
		}
	})
	if rec, err := near.Get(ctx, mine.Key); err != nil || !rec.IsZero() {
		tb.Fatalf("a request that never arrived left %+v, %v", rec, err)
	}
	if a := Resolve(ctx, far, mine); a.Err != nil || a.Record.Terms != 1 {
		tb.Fatalf("asked again: %v in term %d, want the one grant", a.Err, a.Record.Terms)
	}
}

// warm opens a connection and prepares statements on it. So only the request
// itself is lost afterwards.
func warm(tb testing.TB, st store.Store) {
	tb.Helper()
	other := acquire(fmt.Sprintf("cut/warm/%s", tenure.NewSecret()), "ann")
	for _, req := range []tenure.Request{other, renew(other), release(other)} {
		if a := Resolve(tb.Context(), st, req); a.Err != nil {
			tb.Fatal(a.Err)
		}
	}
}

// NotThere checks that a store says so if its server cannot be reached, in all
// its methods, and that it can be closed.
func NotThere(tb testing.TB, st store.Store) {
	tb.Helper()
	ctx := tb.Context()
	unknown := func(what string, err error) {
		tb.Helper()
		if !errors.Is(err, store.ErrUnknown) {
			tb.Errorf("%s of a server that is not there: %v, want unknown", what, err)
		}
	}
	unknown("Apply", st.Apply(ctx, []tenure.Request{acquire("a/b", "ann")})[0].Err)
	_, err := st.Get(ctx, "a/b")
	unknown("Get", err)
	_, err = st.Now(ctx)
	unknown("Now", err)
	if w, ok := st.(store.Watcher); ok {
		_, err = w.Watch(ctx, "a/b")
		unknown("Watch", err)
	}
	if s, ok := st.(store.Sweeper); ok {
		_, err = s.Sweep(ctx)
		unknown("Sweep", err)
	}
	err = nil
	for _, err = range st.List(ctx, "") {
		if err != nil {
			break
		}
	}
	unknown("List", err)
	if err := st.Close(); err != nil {
		tb.Errorf("Close: %v", err)
	}
}
