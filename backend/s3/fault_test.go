package s3

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// faults are what a gateway does to one request: it answers with a status, or
// it passes the request on and loses the reply.
var faults = map[string]struct {
	status int
	lost   bool
}{
	"409": {409, false}, "412": {412, false}, "429": {429, false}, "500": {500, false}, "503": {503, false}, "a lost reply": {0, true},
}

// nth applies a fault to the nth of the counted requests.
func nth(n int, status int, lost bool, counts func(*http.Request) bool) func(*http.Request) (int, bool) {
	var asked atomic.Int64
	return func(r *http.Request) (int, bool) {
		if counts(r) && asked.Add(1) == int64(n) {
			return status, lost
		}
		return 0, false
	}
}

// TestAFaultAtAnyStepOfALeaseLeavesOneTruth: each request in turn fails,
// whether it was carried out or not. Asking again finds out. Nobody is granted
// twice, and a conflict is never taken for a holder.
func TestAFaultAtAnyStepOfALeaseLeavesOneTruth(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	for name, fault := range faults {
		for step := 1; step <= 5; step++ {
			t.Run(fmt.Sprintf("%s at request %d", name, step), func(t *testing.T) {
				t.Parallel()
				g, near := newGateway(t, server), open(t, server, dial(server), Options{})
				st := open(t, server, g.client(server), Options{})
				ctx, key := t.Context(), fmt.Sprintf("fault/%s/%d", name, step)
				mine := claim(key, "ann")
				g.set(nth(step, fault.status, fault.lost, leases))
				for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Report, mine), then(tenure.Release, mine)} {
					a := one(ctx, st, req)
					if errors.Is(a.Err, tenure.ErrHeld) {
						t.Fatalf("%s: nobody else holds the key, and the answer is: %v", req.Verb, a.Err)
					}
					if a.Err != nil && !errors.Is(a.Err, store.ErrUnknown) {
						t.Fatalf("%s: %v", req.Verb, a.Err)
					}
					if a = storetest.Resolve(ctx, st, req); a.Err != nil || a.Record.Grant != mine.Secret.Grant() {
						t.Fatalf("%s, asked again: %v", req.Verb, a.Err)
					}
				}
				rec, err := near.Get(ctx, key)
				if err != nil || rec.Terms != 1 || rec.State != tenure.Free || rec.Ended != tenure.EndReleased {
					t.Errorf("in the end: %+v, %v", rec, err)
				}
			})
		}
	}
}

// TestALostReplyIsResolvedByReadingBack: mostly within the same call.
func TestALostReplyIsResolvedByReadingBack(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g := newGateway(t, server)
	st, ctx := open(t, server, g.client(server), Options{}), t.Context()
	mine := claim("lost/k", "ann")
	for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Release, mine)} {
		g.during(nth(1, 0, true, func(r *http.Request) bool { return r.Method == http.MethodPut }), func() {
			if a := one(ctx, st, req); a.Err != nil || a.Record.Terms != 1 {
				t.Errorf("%s whose reply was lost: %v", req.Verb, a.Err)
			}
		})
	}
}

// TestARenewalThatMayHaveBeenFollowedIsNotRefused: it was made, its reply was
// lost, and another client has taken over since. The record no longer shows the
// renewal.
func TestARenewalThatMayHaveBeenFollowedIsNotRefused(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g, near := newGateway(t, server), open(t, server, dial(server), Options{})
	st, ctx := open(t, server, g.client(server), Options{}), t.Context()
	mine := claim("followed/k", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	isWrite := func(r *http.Request) bool { return r.Method == http.MethodPut }
	var followed sync.Once
	g.after = func(r *http.Request) {
		if isWrite(r) {
			followed.Do(func() {
				hand := tenure.Request{Verb: tenure.Takeover, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"}
				if a := one(ctx, near, hand); a.Err != nil {
					t.Error(a.Err)
				}
			})
		}
	}
	g.during(nth(1, 0, true, isWrite), func() {
		if a := one(ctx, st, then(tenure.Renew, mine)); !errors.Is(a.Err, store.ErrUnknown) {
			t.Errorf("a renewal that was made before another took over: %v, want unknown", a.Err)
		}
	})
	if a := one(ctx, st, then(tenure.Renew, mine)); !errors.Is(a.Err, tenure.ErrNotOwned) {
		t.Errorf("asked again: %v", a.Err)
	}
}

// TestAServerKilledBetweenRequestAndReply: the server has carried out the
// request or not. The client finds out when the server is back.
func TestAServerKilledBetweenRequestAndReply(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{true, false} {
		t.Run(fmt.Sprintf("done %v", done), func(t *testing.T) {
			t.Parallel()
			server := testenv.S3Alone(t)
			g := newGateway(t, server)
			st, ctx := open(t, server, g.client(server), Options{}), t.Context()
			mine := claim("killed/k", "ann")
			put := func(r *http.Request) bool { return leases(r) && r.Method == http.MethodPut }
			for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Release, mine)} {
				var first atomic.Bool
				g.after = func(*http.Request) {
					if done {
						server.Kill()
					}
				}
				g.during(func(r *http.Request) (int, bool) {
					if !put(r) || !first.CompareAndSwap(false, true) {
						return 0, false
					}
					if !done {
						server.Kill()
					}
					return 0, done
				}, func() {
					if a := one(ctx, st, req); !errors.Is(a.Err, store.ErrUnknown) {
						t.Fatalf("%s while the server was killed: %v, want unknown", req.Verb, a.Err)
					}
				})
				server.Restart(t)
				before, err := st.Get(ctx, mine.Key)
				if err != nil {
					t.Fatal(err)
				}
				if granted := before.Grant == mine.Secret.Grant(); req.Verb == tenure.Acquire && granted != done {
					t.Errorf("granted: %v; the request arrived: %v", granted, done)
				}
				if a := storetest.Resolve(ctx, st, req); a.Err != nil || a.Record.Terms != 1 {
					t.Errorf("%s, asked again: %v in term %d", req.Verb, a.Err, a.Record.Terms)
				}
			}
		})
	}
}

// TestAFaultAtAnyStepOfAWriteLeavesWholeContent: the old content or the new,
// and the new if the write succeeded.
func TestAFaultAtAnyStepOfAWriteLeavesWholeContent(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	all := func(*http.Request) bool { return true }
	for name, fault := range faults {
		for step := 1; step <= 6; step++ {
			t.Run(fmt.Sprintf("%s at request %d", name, step), func(t *testing.T) {
				t.Parallel()
				gate, key := newGateway(t, server), objectName(server)
				g, near, ctx := openGuard(t, server, gate.client(server), key), openGuard(t, server, dial(server), key), t.Context()
				if err := write(ctx, near, stamp(10, 1, 1), "old"); err != nil {
					t.Fatal(err)
				}
				var err error
				gate.during(nth(step, fault.status, fault.lost, all), func() { err = write(ctx, g, stamp(11, 2, 1), "new") })
				got, _, readErr := content(ctx, near)
				mark, markErr := near.Mark(ctx)
				switch {
				case readErr != nil || markErr != nil:
					t.Errorf("the content cannot be read: %v, %v", readErr, markErr)
				case string(got) == "new" && mark.Token == 11:
				case err != nil && !errors.Is(err, ErrCopyBehind) && string(got) == "old" && mark.Token == 10:
				default:
					t.Errorf("the write: %v; the content is %q under token %d", err, got, mark.Token)
				}
				if err == nil {
					if copied, _, err := plain(ctx, dial(server), server.Bucket, key); err != nil || string(copied) != "new" {
						t.Errorf("the plain copy is %q, %v", copied, err)
					}
				}
				if err := write(ctx, near, stamp(10, 1, 2), "late"); string(got) == "new" && err == nil {
					t.Error("after the new owner's write the old owner's was admitted")
				}
			})
		}
	}
}

// TestRightsAreNamedWhenTheyAreMissing: also in the middle of a lease. The
// error then says nothing about the lease.
func TestRightsAreNamedWhenTheyAreMissing(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g := newGateway(t, server)
	st, ctx := open(t, server, g.client(server), Options{}), t.Context()
	mine := claim("rights/k", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	g.during(func(*http.Request) (int, bool) { return 403, false }, func() {
		a := one(ctx, st, then(tenure.Renew, mine))
		if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, ErrDenied) || !strings.Contains(a.Err.Error(), "s3:PutObject") {
			t.Errorf("a renewal that is not allowed: %v", a.Err)
		}
	})
}
