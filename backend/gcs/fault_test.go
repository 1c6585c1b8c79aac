package gcs

import (
	"context"
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
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// statuses are the answers of a service in trouble, and of a service where
// others write to the same object.
var statuses = []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}

// TestAFaultAtEveryStepLeavesOneTruth: at every request of every operation
// there is each bad answer and a cut connection, with the request carried out
// and without. Then the operation succeeds, or its outcome is unknown and
// asking again settles it. It is never refused, because nobody else is there.
func TestAFaultAtEveryStepLeavesOneTruth(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name := server.Bucket(t)
	every := func(*http.Request) bool { return true }
	for _, delivered := range []bool{false, true} {
		for _, status := range append([]int{0}, statuses...) {
			for step := int64(1); step <= 2; step++ {
				f := &fault{status: status, cut: status == 0, delivered: delivered}
				t.Run(fmt.Sprintf("status %d at request %d, delivered %v", status, step, delivered), func(t *testing.T) {
					t.Parallel()
					way := newProxy(t, server.Endpoint)
					o := &Options{Connection: at(way.URL), patience: 5 * time.Millisecond, SkipProbe: true}
					st := open(t, name, o)
					defer st.Close()
					mine := acquire("faults/"+string(tenure.NewSecret()), "ann")
					hand := tenure.Request{Verb: tenure.Takeover, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"}
					for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Report, mine), then(tenure.Release, mine), hand} {
						if step == 2 {
							st.reg.memory.Forget(mine.Key) // so that the store reads first
						}
						way.on(nth(step, every, f))
						a := one(t.Context(), st, req)
						way.on(nil)
						if a.Err != nil && !errors.Is(a.Err, store.ErrUnknown) {
							t.Fatalf("%s: %v", req.Verb, a.Err)
						}
						again := storetest.Resolve(t.Context(), st, req)
						if again.Err != nil || again.Record.Terms == 0 {
							t.Fatalf("%s again: %v", req.Verb, again.Err)
						}
						if a.Err == nil && (a.Record.Token != again.Record.Token || a.Record.State != again.Record.State) {
							t.Fatalf("%s: token %d %s, asked again %d %s", req.Verb, a.Record.Token, a.Record.State, again.Record.Token, again.Record.State)
						}
					}
					rec, err := st.Get(t.Context(), mine.Key)
					if err != nil || rec.Terms != 2 || len(rec.History) != 2 {
						t.Errorf("one lease and one takeover left %d terms and %d transfers, %v", rec.Terms, len(rec.History), err)
					}
				})
			}
		}
	}
}

// TestALostReplyAndAnotherSince: the write was made, its reply was lost, and
// then another has replaced the record. The law finds a grant in the history.
// It does not find a renewal there, so the renewal must not be refused as if it
// had not been made.
func TestALostReplyAndAnotherSince(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st, near := open(t, name, &Options{Connection: at(way.URL)}), open(t, name, &Options{Connection: at(server.Endpoint)})
	defer st.Close()
	defer near.Close()
	ctx := t.Context()
	during := func(req, other tenure.Request) store.Answer {
		way.on(nth(1, isWrite, &fault{delivered: true, cut: true, after: func() {
			if a := one(ctx, near, other); a.Err != nil {
				t.Errorf("%s by another: %v", other.Verb, a.Err)
			}
		}}))
		defer way.on(nil)
		return one(ctx, st, req)
	}
	hand := func(key string) tenure.Request {
		return tenure.Request{Verb: tenure.Takeover, Key: key, Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"}
	}
	var lost *tenure.NotOwnedError
	if a := during(acquire("since/claim", "ann"), hand("since/claim")); !errors.As(a.Err, &lost) || lost.Why != tenure.WhyTakenOver {
		t.Errorf("a grant that was taken over at once: %v", a.Err)
	}
	mine, next := acquire("since/release", "ann"), acquire("since/release", "bob")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	if a := during(then(tenure.Release, mine), next); a.Err != nil {
		t.Errorf("a release after which another was granted: %v", a.Err)
	}
	if rec, err := near.Get(ctx, mine.Key); err != nil || rec.Grant != next.Secret.Grant() || rec.State != tenure.Held {
		t.Errorf("the next holder has %+v, %v", rec, err)
	}
	for _, verb := range []tenure.Verb{tenure.Renew, tenure.Report, tenure.Checkpoint} {
		mine := acquire("since/"+string(verb), "ann")
		if a := storetest.Resolve(ctx, st, mine); a.Err != nil {
			t.Fatal(a.Err)
		}
		if a := during(then(verb, mine), hand(mine.Key)); !errors.Is(a.Err, store.ErrUnknown) {
			t.Errorf("a %s that was made before another took over: %v, want unknown", verb, a.Err)
		}
		if a := storetest.Resolve(ctx, st, then(verb, mine)); !errors.As(a.Err, &lost) || lost.Why != tenure.WhyTakenOver {
			t.Errorf("asked again: %v", a.Err)
		}
	}
}

// TestAServerThatAlwaysFails: the outcome is unknown, and the error says
// why. It comes before the context ends if waiting is useless.
func TestAServerThatAlwaysFails(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st := open(t, name, &Options{Connection: at(way.URL), patience: time.Millisecond})
	defer st.Close()
	for status, says := range map[int]string{
		http.StatusServiceUnavailable: "ask again",
		http.StatusTooManyRequests:    "one write a second",
		http.StatusUnauthorized:       "credentials",
		http.StatusForbidden:          "storage.objects.get",
		http.StatusBadRequest:         "is this endpoint a Google Cloud Storage?",
	} {
		way.on(func(*http.Request) *fault { return &fault{status: status, body: `{"error": {"message": "no"}}`} })
		a := one(t.Context(), st, acquire("ill/all", "ann"))
		if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), says) {
			t.Errorf("status %d: %v; want unknown, and %q", status, a.Err, says)
		}
		for _, err := range st.List(t.Context(), "") {
			if !errors.Is(err, store.ErrUnknown) {
				t.Errorf("status %d to a listing: %v", status, err)
			}
		}
	}
	way.on(func(r *http.Request) *fault {
		if isWrite(r) {
			return &fault{status: http.StatusForbidden, body: `{"error": {"message": "no"}}`}
		}
		return nil
	})
	if a := one(t.Context(), st, acquire("ill/write", "ann")); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "storage.objects.create") {
		t.Errorf("a write that is forbidden: %v", a.Err)
	}
	way.on(func(*http.Request) *fault {
		return &fault{status: http.StatusForbidden, body: `{"error": {"message": "subject to bucket's retention policy", "errors": [{"reason": "retentionPolicyNotMet"}]}}`}
	})
	if a := one(t.Context(), st, acquire("ill/retention", "ann")); a.Err == nil || !strings.Contains(a.Err.Error(), "bucket without one") {
		t.Errorf("a bucket with a retention policy: %v", a.Err)
	}
	way.on(func(*http.Request) *fault {
		return &fault{status: http.StatusNotFound, body: `{"error": {"message": "The specified bucket does not exist."}}`}
	})
	if a := one(t.Context(), st, acquire("ill/bucket", "ann")); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "there is no such bucket") {
		t.Errorf("a bucket that is gone: %v", a.Err)
	}
	way.Close()
	if a := one(t.Context(), st, acquire("ill/gone", "ann")); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "cannot be reached") {
		t.Errorf("a server that is gone: %v", a.Err)
	}
}

// TestOneWriteASecond: like Google's service, this one takes only one write to
// an object in a while. The release of a short job is turned away, waits, and
// is made.
func TestOneWriteASecond(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	const limit = 200 * time.Millisecond
	st := open(t, name, &Options{Connection: at(way.URL), patience: limit})
	defer st.Close()
	var turned, came []time.Time // no lock: one client sends one request after the other
	early := nth(2, isWrite, &fault{status: http.StatusTooManyRequests})
	way.on(func(r *http.Request) *fault {
		f := early(r)
		if f != nil {
			turned = append(turned, time.Now())
		} else if isWrite(r) {
			came = append(came, time.Now())
		}
		return f
	})
	mine := acquire("limit/short", "ann")
	for _, req := range []tenure.Request{mine, then(tenure.Release, mine)} {
		if a := one(t.Context(), st, req); a.Err != nil {
			t.Fatalf("%s: %v", req.Verb, a.Err)
		}
	}
	if len(turned) != 1 || len(came) != 2 || came[1].Sub(turned[0]) < limit {
		t.Errorf("writes turned away at %v, taken at %v; want a release that waits", turned, came)
	}
	// Without time to wait, the outcome is unknown. Nothing was changed.
	next := acquire(mine.Key, "bob")
	way.on(func(r *http.Request) *fault {
		if isWrite(r) {
			return &fault{status: http.StatusTooManyRequests}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if a := one(ctx, st, next); !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("turned away for longer than the context lasts: %v", a.Err)
	}
	way.on(nil)
	if a := storetest.Resolve(t.Context(), st, next); a.Err != nil || a.Record.Terms != 2 {
		t.Errorf("asked again: %v in term %d", a.Err, a.Record.Terms)
	}
}

// TestAServerThatHangsHoldsNobodyUp: connections stay open and nothing answers.
// Calls return when their context ends, and asking again later settles the
// outcome.
func TestAServerThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := testenv.GCSAlone(t, "-exact")
	name := server.Bucket(t)
	st := open(t, name, &Options{Connection: at(server.Endpoint)})
	defer st.Close()
	g := openGuard(t, name, "out.json", GuardOptions{Connection: at(server.Endpoint)})
	server.Pause(t)
	var mine tenure.Request
	for n := 0; ; n++ { // the signal needs a moment
		mine = acquire(fmt.Sprintf("hang/server/%d", n), "ann")
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		a := one(soon, st, mine)
		cancel()
		if a.Err == nil {
			continue
		}
		if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.DeadlineExceeded) {
			t.Errorf("a claim: %v", a.Err)
		}
		break
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Write(ctx, stamp(10, 1, 0), strings.NewReader("content")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a guarded write: %v", err)
	}
	server.Resume()
	if a := storetest.Resolve(t.Context(), st, mine); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("asked again: %v in term %d", a.Err, a.Record.Terms)
	}
}

// TestADamagedObjectIsNamedAndHidesNothing: an object that somebody else has
// put in a record's place decides nothing. The other records are listed and
// swept.
func TestADamagedObjectIsNamedAndHidesNothing(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	st := open(t, server.Bucket(t), &Options{Connection: at(server.Endpoint)})
	defer st.Close()
	good, bad := acquire("damage/good", "ann"), acquire("damage/bad", "ann")
	if a := one(t.Context(), st, good); a.Err != nil {
		t.Fatal(a.Err)
	}
	name := st.reg.layout.Record(bad.Key)
	if _, err := st.reg.put(t.Context(), name, 0, []byte("hello"), ""); err != nil {
		t.Fatal(err)
	}
	if a := one(t.Context(), st, bad); !errors.Is(a.Err, cas.ErrDamaged) || !strings.Contains(a.Err.Error(), name) {
		t.Errorf("a claim of a damaged record: %v", a.Err)
	}
	seen, failed := 0, error(nil)
	for _, err := range st.List(t.Context(), "") {
		if err != nil {
			failed = err
		} else {
			seen++
		}
	}
	if seen != 1 || !errors.Is(failed, cas.ErrDamaged) {
		t.Errorf("a listing shows %d records, then %v", seen, failed)
	}
}

// TestRenewalsKeepToTheLimit: renewals and reports are not sent faster than the
// service takes writes to one object.
func TestRenewalsKeepToTheLimit(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	const limit = 150 * time.Millisecond
	st := open(t, server.Bucket(t), &Options{Connection: at(server.Endpoint), limit: limit})
	defer st.Close()
	mine := acquire("limit/renew", "ann")
	begun := time.Now()
	for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Report, mine), then(tenure.Renew, mine)} {
		if a := one(t.Context(), st, req); a.Err != nil {
			t.Fatalf("%s: %v", req.Verb, a.Err)
		}
	}
	if took := time.Since(begun); took < 3*limit {
		t.Errorf("four writes to one object within %s", took)
	}
	// Even on a busy machine, less than an hour passes between a grant and a
	// renewal.
	slow := open(t, server.Bucket(t), &Options{Connection: at(server.Endpoint), limit: time.Hour})
	defer slow.Close()
	if a := one(t.Context(), slow, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit/10)
	defer cancel()
	if a := one(ctx, slow, then(tenure.Renew, mine)); !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("a renewal without the time to wait: %v", a.Err)
	}
}

// TestManyReportsKeepToTheLimitAndLetRenewalsPass: they take turns, and a
// renewal gets the next turn.
func TestManyReportsKeepToTheLimitAndLetRenewalsPass(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	const limit = 100 * time.Millisecond
	way := &carrier{}
	st := open(t, server.Bucket(t), &Options{Connection: Connection{Endpoint: server.Endpoint, Transport: way}, limit: limit, SkipProbe: true})
	defer st.Close()
	mine := acquire("limit/many", "ann")
	if a := one(t.Context(), st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	begun, reporting, stop := time.Now(), sync.WaitGroup{}, make(chan struct{})
	way.sent()
	for n := range 8 {
		verb := []tenure.Verb{tenure.Report, tenure.Checkpoint}[n%2]
		reporting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := one(t.Context(), st, then(verb, mine)); a.Err != nil {
					t.Error(a.Err)
					return
				}
			}
		})
	}
	for range 3 {
		before := way.writes.Load()
		if a := one(t.Context(), st, then(tenure.Renew, mine)); a.Err != nil {
			t.Error(a.Err)
		}
		if n := way.writes.Load() - before; n > 30 { // without turns there can be hundreds
			t.Errorf("%d writes during a renewal", n)
		}
	}
	writes, most := way.writes.Load(), int64(time.Since(begun)/limit)+2
	close(stop)
	reporting.Wait()
	if writes > most {
		t.Errorf("%d writes in a time for %d", writes, most)
	}
}

// TestARenewalThatIsTurnedAwayHoldsNobodyUp: the other answers of its batch
// wait for it. So the store soon gives up, and its renewer sends it again.
func TestARenewalThatIsTurnedAwayHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st := open(t, name, &Options{Connection: at(way.URL), patience: time.Millisecond, SkipProbe: true})
	defer st.Close()
	turned, taken := acquire("limit/turned", "ann"), acquire("limit/taken", "ann")
	for _, a := range st.Apply(t.Context(), []tenure.Request{turned, taken}) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	var writes atomic.Int64
	object := st.reg.layout.Record(turned.Key)
	way.on(func(r *http.Request) *fault {
		if !isWrite(r) || r.URL.Query().Get("name") != object {
			return nil
		}
		writes.Add(1)
		return &fault{status: http.StatusTooManyRequests}
	})
	answers := st.Apply(t.Context(), []tenure.Request{then(tenure.Renew, turned), then(tenure.Renew, taken)})
	if !errors.Is(answers[0].Err, store.ErrUnknown) || !strings.Contains(answers[0].Err.Error(), "one write a second") || answers[1].Err != nil {
		t.Errorf("the one that is turned away: %v; the other: %v", answers[0].Err, answers[1].Err)
	}
	if n := writes.Load(); n != 2 {
		t.Errorf("it was sent %d times", n)
	}
}

// TestAServerKilledBetweenRequestAndReply: the request is carried out, and its
// reply is lost. Asking again when the server is back settles the outcome.
func TestAServerKilledBetweenRequestAndReply(t *testing.T) {
	t.Parallel()
	server := testenv.GCSAlone(t, "-root", t.TempDir())
	name, way := server.Bucket(t), newProxy(t, server.Endpoint)
	st := open(t, name, &Options{Connection: at(way.URL)})
	defer st.Close()
	mine := acquire("killed/server", "ann")
	var token any
	for _, req := range []tenure.Request{mine, then(tenure.Renew, mine), then(tenure.Release, mine)} {
		way.on(nth(1, isWrite, &fault{delivered: true, cut: true, after: server.Kill}))
		if a := one(t.Context(), st, req); !errors.Is(a.Err, store.ErrUnknown) {
			t.Fatalf("%s of a server that dies: %v, want unknown", req.Verb, a.Err)
		}
		way.on(nil)
		server.Restart(t)
		a := storetest.Resolve(t.Context(), st, req)
		if a.Err != nil || a.Record.Terms != 1 {
			t.Fatalf("%s again: %v in term %d, want the one grant", req.Verb, a.Err, a.Record.Terms)
		}
		if token == nil {
			token = a.Record.Token
		}
		if a.Record.Token != token {
			t.Errorf("%s again: token %d, it was %d", req.Verb, a.Record.Token, token)
		}
	}
}
