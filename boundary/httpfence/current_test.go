package httpfence

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// follower returns a follower of the world's store, until the test ends.
func (w *world) follower(t testing.TB) *current.Follower {
	t.Helper()
	f, err := current.Follow(w.store.Open(nil), &current.Options{Timeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// lease acquires a lease that lasts as long as any test.
func (w *world) lease(t testing.TB, key, owner string) *croft.Lease {
	t.Helper()
	l, err := newClient(t, w.store, owner).Acquire(t.Context(), key, &croft.LeaseOptions{TTL: 10 * testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAReplacedOwnerIsRefusedBeforeItsSuccessorWrites: the mark alone would let
// it in.
func TestAReplacedOwnerIsRefusedBeforeItsSuccessorWrites(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var writes atomic.Int64
	service := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		writes.Add(1)
	})
	_, front := w.proxy(t, "gate", service, func(o *ProxyOptions) { o.Current = w.follower(t) })
	url := front.URL + "/r/1"
	ann := w.lease(t, "jobs/a", "ann").Stamp()
	send(t, "PUT", url, ann, "x").want(t, "the owner's write", 200, "")
	taken, err := newClient(t, w.store, "op").Takeover(t.Context(), "jobs/a", croft.ByHand{Note: "stuck"})
	if err != nil && !errors.Is(err, croft.ErrUnfenced) {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the replaced owner is refused", func() error {
		before := writes.Load()
		r := send(t, "PUT", url, ann, "x")
		if r.status != 409 {
			return errors.New(r.String())
		}
		r.want(t, "the replaced owner's write", 409, "not_owned")
		if p := r.problem; p != nil && (p.Owner != "op" || p.Newest != taken.Deed.Token || p.Token != ann.Token || p.Sent) {
			t.Errorf("it is told %+v", p.Problem)
		}
		if writes.Load() != before {
			t.Error("the service has seen it")
		}
		return nil
	})
	if mark := w.mark(t, "r/1"); mark.Token != ann.Token {
		t.Errorf("the mark has moved to %+v", mark)
	}
}

// mark reads the mark of a resource.
func (w *world) mark(t testing.TB, resource string) fence.Mark {
	t.Helper()
	g, err := w.marks.open(t.Context(), resource)
	if err != nil {
		t.Fatal(err)
	}
	mark, err := g.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

// TestAStampThatNobodyWasGrantedIsRefused: a forged stamp is refused, and its
// sender learns nothing about the owners.
func TestAStampThatNobodyWasGrantedIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "gate", func(o *Options) { o.Current = w.follower(t) })
	url := serve(t, g)
	ann := w.lease(t, "jobs/a", "secret-name").Stamp()
	higher, lower, stranger, unknown := ann, ann, ann, ann
	higher.Token++
	lower.Token--
	lower.Grant = tenure.NewSecret().Grant()
	stranger.Grant = tenure.NewSecret().Grant()
	unknown.Key = "jobs/none"
	for name, stamp := range map[string]fence.Stamp{
		"a higher token": higher, "a lower token": lower, "another grant": stranger, "another key": unknown,
	} {
		r := send(t, "PUT", url, stamp, "")
		r.want(t, name, 409, "not_owned")
		if strings.Contains(r.body, "secret-name") {
			t.Errorf("%s: it is told who has the key: %s", name, r)
		}
	}
	if mark := w.mark(t, "r/1"); !mark.IsZero() {
		t.Errorf("the mark has moved to %+v", mark)
	}
	if rec, err := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1"); err != nil || !rec.IsZero() {
		t.Errorf("a stranger's write has taken the lease of the resource: %+v, %v", rec, err)
	}
	send(t, "PUT", url, ann, "").want(t, "the owner's", 200, "")
}

// TestAStaleStampIsStillCalledStale: the gate says "stale" if it has seen a
// newer stamp.
func TestAStaleStampIsStillCalledStale(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "gate", func(o *Options) { o.Current = w.follower(t) })
	url := serve(t, g)
	first := w.lease(t, "jobs/a", "ann")
	send(t, "PUT", url, first.Stamp(), "").want(t, "the first owner's", 200, "")
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, "PUT", url, w.lease(t, "jobs/a", "bob").Stamp(), "").want(t, "its successor's", 200, "")
	send(t, "PUT", url, first.Stamp(), "").want(t, "the first owner's, late", 409, "stale")
}

// unsure is a check that cannot tell.
type unsure struct{}

func (unsure) Check(context.Context, fence.Stamp) error {
	return store.Unknown(errors.New("db.internal:5432 does not answer"))
}

// TestWhenTheStoreDoesNotSay: by default nobody is let in. With AdmitUnsure the
// mark decides, and each time there is an event.
func TestWhenTheStoreDoesNotSay(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var told, refused atomic.Int64
	observe := func(e gate.Event) {
		switch {
		case e.Kind == gate.Unsure && e.Status == 0:
			told.Add(1)
		case e.Kind == gate.Unsure && e.Status == 503:
			refused.Add(1)
		}
	}
	strict := serve(t, w.gate(t, "strict", func(o *Options) { o.Current, o.Observe = unsure{}, observe }))
	r := send(t, "PUT", strict, newer, "")
	r.want(t, "by default", 503, "unknown")
	if r.header.Get("Retry-After") == "" || strings.Contains(r.body, "db.internal") || r.problem.Sent {
		t.Errorf("the answer is %s", r)
	}
	open := serve(t, w.gate(t, "open", func(o *Options) { o.Current, o.AdmitUnsure, o.Observe = unsure{}, true, observe }))
	send(t, "PUT", open, newer, "").want(t, "with AdmitUnsure", 200, "")
	send(t, "PUT", open, older, "").want(t, "an older owner's", 409, "stale")
	if n := told.Load(); n != 1 { // the mark refuses the older one without an event
		t.Errorf("it was told %d times, want once", n)
	}
	if n := refused.Load(); n != 1 {
		t.Errorf("%d refusals for this reason were told, want one", n)
	}
}

// TestAWriteThatWaitedIsCheckedAgain: its owner was replaced while another
// write was under way.
func TestAWriteThatWaitedIsCheckedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	entered, leave := make(chan string, 2), make(chan struct{})
	service := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		entered <- string(body)
		<-leave
	})
	f := w.follower(t)
	p, front := w.proxy(t, "gate", service, func(o *ProxyOptions) { o.Current = f })
	url := front.URL + "/r/1"
	ann := w.lease(t, "jobs/a", "ann").Stamp()
	put := func(body string) <-chan reply {
		replies := make(chan reply, 1)
		go func() {
			r, err := sendErr(t.Context(), "PUT", url, ann, body)
			if err != nil {
				t.Error(err)
			}
			replies <- r
		}()
		return replies
	}
	first := put("first")
	<-entered
	second := put("second")
	atGate(t, p.gate, 2)
	if _, err := newClient(t, w.store, "op").Takeover(t.Context(), "jobs/a", croft.ByHand{Note: "stuck"}); err != nil && !errors.Is(err, croft.ErrUnfenced) {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the gate has heard of the takeover", func() error {
		if f.Check(t.Context(), ann) == nil {
			return errors.New("it has not")
		}
		return nil
	})
	close(leave)
	(<-first).want(t, "the first", 200, "")
	(<-second).want(t, "the second", 409, "not_owned")
	select {
	case body := <-entered:
		t.Errorf("the service has seen %q", body)
	default:
	}
}

// flaky is a store that is out of reach at times.
type flaky struct {
	*mem.Store
	away atomic.Bool
}

func (f *flaky) Get(ctx context.Context, key string) (tenure.Record, error) {
	if f.away.Load() {
		return tenure.Record{}, errors.New("the store is away")
	}
	return f.Store.Get(ctx, key)
}

// arrivedAt is a write that the service has seen, and when its client sent it.
type arrivedAt struct {
	token fence.Token
	sent  time.Time // by its client
}

// TestNoReplacedOwnerIsLetInOnceTheGateHasHeard: many owners write all the
// time, the replaced ones as well. Meanwhile an operator takes the key over
// again and again, and the store is away at times.
func TestNoReplacedOwnerIsLetInOnceTheGateHasHeard(t *testing.T) {
	t.Parallel()
	w := newWorld()
	from := &flaky{Store: w.store.Open(nil)}
	f, err := current.Follow(from, &current.Options{MaxSilentAge: time.Millisecond, MaxAge: 20 * time.Millisecond, Timeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	g := w.gate(t, "gate", func(o *Options) { o.Current = f })
	var mu sync.Mutex
	var seen []arrivedAt
	heard := map[fence.Token]time.Time{} // when the gate knew that this owner is replaced
	handler := g.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stamp, _ := StampFrom(r.Context())
		sent, _ := time.Parse(time.RFC3339Nano, r.Header.Get("Sent"))
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, arrivedAt{stamp.Token, sent})
	}))
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	write := func(stamp fence.Stamp) {
		for ctx.Err() == nil {
			r := httptest.NewRequest(http.MethodPut, "/r/1", nil)
			SetStamp(r.Header, stamp)
			r.Header.Set("Sent", time.Now().Format(time.RFC3339Nano))
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	op := newClient(t, w.store, "op")
	for range 12 {
		taken, err := op.Takeover(t.Context(), "jobs/a", croft.ByHand{Note: "test"})
		if err != nil && !errors.Is(err, croft.ErrUnfenced) {
			t.Fatal(err)
		}
		rec, err := w.store.Get(t.Context(), "jobs/a")
		if err != nil {
			t.Fatal(err)
		}
		stamp := rec.Stamp()
		if stamp.Token != taken.Deed.Token {
			t.Fatalf("the operator has token %d, the store says %d", taken.Deed.Token, stamp.Token)
		}
		testenv.Eventually(t, "the gate has heard of the takeover", func() error {
			return f.Check(t.Context(), stamp)
		})
		mu.Lock()
		heard[stamp.Token] = time.Now()
		mu.Unlock()
		writers.Go(func() { write(stamp) })
		testenv.Eventually(t, "the new owner's write", func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(seen) == 0 || seen[len(seen)-1].token != stamp.Token {
				return errors.New("the service has not seen it")
			}
			return nil
		})
		from.away.Store(true)
		time.Sleep(5 * time.Millisecond)
		from.away.Store(false)
	}
	stop()
	writers.Wait()
	var newest fence.Token
	for _, write := range seen {
		if write.token < newest {
			t.Fatalf("the service saw token %d after %d", write.token, newest)
		}
		newest = write.token
		for successor, at := range heard {
			if successor > write.token && write.sent.After(at) {
				t.Fatalf("token %d was let in, sent %s after the gate had heard of token %d", write.token, write.sent.Sub(at), successor)
			}
		}
	}
	if len(heard) != 12 || len(seen) < 12 {
		t.Errorf("%d owners, %d writes", len(heard), len(seen))
	}
}

// TestAnotherKeysOwnerIsNotNamed: an error of the gate's own lease, or of a
// handler's, may name an owner. The client must not learn it.
func TestAnotherKeysOwnerIsNotNamed(t *testing.T) {
	t.Parallel()
	other := &tenure.NotOwnedError{Grant: newer.Grant, Why: tenure.WhyTakenOver, Record: tenure.Record{
		Key: DefaultLeasePrefix + "r/1", Token: 50, Grant: newer.Grant, Owner: "secret-name", State: tenure.Held,
		History: []tenure.Term{{Token: newer.Token, Grant: newer.Grant, Owner: "secret-name"}},
	}}
	for name, stamp := range map[string]fence.Stamp{"a handler's": {}, "the gate's": newer} {
		recorder := httptest.NewRecorder()
		known := *admission.RefusalOf(other)
		known.Stamp = stamp
		Refuse(recorder, &known)
		if body := recorder.Body.String(); strings.Contains(body, "secret-name") || strings.Contains(body, "50") {
			t.Errorf("%s error is told as %s", name, body)
		}
	}
}
