package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// acquireOf makes the request of an owner for a key.
func acquireOf(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Hour}
}

// serve answers a call without a network.
func serve(ctx context.Context, s *Server, path, body string) (status int, answer string) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", wire.JSON)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// lateWatch is a store whose key is released just before a watch begins. The
// watch then has nothing to tell.
type lateWatch struct {
	*mem.Store
	release tenure.Request
}

func (l lateWatch) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if a := l.Apply(ctx, []tenure.Request{l.release})[0]; a.Err != nil {
		return nil, a.Err
	}
	return l.Store.Watch(ctx, key)
}

// TestAReleaseBeforeTheWatchIsNotMissed: a waiting acquire asks again when the
// watch has begun.
func TestAReleaseBeforeTheWatchIsNotMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(nil)
		defer st.Close()
		first := acquireOf("a/b", "ann")
		if a := st.Apply(t.Context(), []tenure.Request{first})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		srv := New(lateWatch{st, tenure.Request{Verb: tenure.Release, Key: "a/b", Secret: first.Secret}}, nil)
		defer srv.Drain()
		begun := time.Now()
		status, body := serve(t.Context(), srv, path("a/b", "acquire"), `{`+secret(2)+`,"owner":"bob","ttl":"1h","wait":"30m"}`)
		if took := time.Since(begun); status != http.StatusOK || took > time.Second {
			t.Errorf("after %s: %d %s", took, status, body)
		}
	})
}

// TestAClientThatLeavesIsGrantedNothing: a waiting acquire whose client has
// left does not ask again.
func TestAClientThatLeavesIsGrantedNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.New(nil)
		defer base.Close()
		if a := base.Apply(t.Context(), []tenure.Request{acquireOf("a/b", "ann")})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		var asked atomic.Int32
		srv := New(broken{base, func(ctx context.Context, requests []tenure.Request) []store.Answer {
			asked.Add(int32(len(requests)))
			return base.Apply(ctx, requests)
		}}, nil)
		defer srv.Drain()
		ctx, leave := context.WithCancel(t.Context())
		go serve(ctx, srv, path("a/b", "acquire"), `{`+secret(2)+`,"owner":"bob","ttl":"1h","wait":"30m"}`)
		synctest.Wait()
		before := asked.Load()
		leave()
		synctest.Wait()
		if n := asked.Load(); before == 0 || n != before {
			t.Errorf("asked %d times before the client left, and %d times in all", before, n)
		}
	})
}

// TestAKeyPastItsDeadlineIsNotAskedForAllTheTime: some stores free a key some
// time after its deadline.
func TestAKeyPastItsDeadlineIsNotAskedForAllTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.New(nil)
		defer base.Close()
		asked := 0
		srv := New(broken{base, func(_ context.Context, requests []tenure.Request) []store.Answer {
			asked++
			now := time.Now()
			return []store.Answer{{Err: &tenure.HeldError{Why: tenure.WhyHeld, Until: now.Add(-time.Second), Now: now}}}
		}}, nil)
		defer srv.Drain()
		status, body := serve(t.Context(), srv, path("a/b", "acquire"), `{`+secret(2)+`,"owner":"bob","ttl":"1h","wait":"1m"}`)
		refused(t, "a key that stays held", status, body, http.StatusConflict, wire.Held)
		if asked > 200 {
			t.Errorf("the store was asked %d times in a minute", asked)
		}
	})
}

// TestNoRequestGoesOutLate: requests wait for a call no longer than a call may
// take, nor longer than their client. A grant that came later would be
// nobody's.
func TestNoRequestGoesOutLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.New(nil)
		defer base.Close()
		hang := make(chan struct{})
		srv := New(broken{base, func(ctx context.Context, requests []tenure.Request) []store.Answer {
			if strings.HasPrefix(requests[0].Key, "hang/") {
				<-hang
			}
			return base.Apply(ctx, requests)
		}}, &Options{CallTimeout: 5 * time.Second})
		defer srv.Drain()
		ask := func(ctx context.Context, q tenure.Request) <-chan error {
			done := make(chan error, 1)
			go func() {
				answers, err := srv.batcher.apply(ctx, []tenure.Request{q})
				if err == nil {
					err = answers[0].Err
				}
				done <- err
			}()
			return done
		}
		for i := range maxFlying {
			ask(t.Context(), acquireOf("hang/"+string(rune('a'+i)), "ann"))
			time.Sleep(2 * overtakeAfter)
		}
		ctx, leave := context.WithCancel(t.Context())
		left, waited := ask(ctx, acquireOf("left/key", "ann")), ask(t.Context(), acquireOf("late/key", "ann"))
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, errBusy) {
			t.Errorf("the client that left: %v", err)
		}
		if err := <-waited; !errors.Is(err, errBusy) {
			t.Errorf("the client that waited: %v", err)
		}
		close(hang)
		synctest.Wait()
		for _, key := range []string{"left/key", "late/key"} {
			if rec, err := base.Get(t.Context(), key); err != nil || !rec.IsZero() {
				t.Errorf("%s was granted after all: %+v, %v", key, rec, err)
			}
		}
	})
}

// TestAFaultAfterAFailedCallIsUnknown: the store panics on a batch of several
// clients, so each goes out alone. The call that failed may have had an effect.
func TestAFaultAfterAFailedCallIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.New(nil)
		defer base.Close()
		srv := New(broken{base, func(ctx context.Context, requests []tenure.Request) []store.Answer {
			switch {
			case requests[0].Key == "first/key":
				time.Sleep(overtakeAfter / 2) // meanwhile the others gather
			case len(requests) > 1:
				base.Apply(ctx, requests)
				panic("after the effect")
			default:
				return store.Failed(1, store.Fault(errors.New("no more")))
			}
			return base.Apply(ctx, requests)
		}}, nil)
		defer srv.Drain()
		go srv.batcher.apply(t.Context(), []tenure.Request{acquireOf("first/key", "ann")}) //nolint:errcheck // see above
		synctest.Wait()
		errs := make(chan error, 2)
		for _, key := range []string{"a/b", "c/d"} {
			go func() {
				answers, _ := srv.batcher.apply(t.Context(), []tenure.Request{acquireOf(key, "ann")})
				errs <- answers[0].Err
			}()
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, store.ErrUnknown) || store.IsFault(err) {
				t.Errorf("%v; want unknown, and no fault", err)
			}
		}
	})
}
