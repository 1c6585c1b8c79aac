package httpfence

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// follower follows the store of a world, until the test ends.
func (w *world) follower(t testing.TB) *current.Follower {
	t.Helper()
	f, err := current.Follow(w.store.Open(nil), current.Options{Timeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// lease takes a lease that lasts as long as any test.
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

// mark is the mark of a resource.
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

// TestAStampThatNobodyWasGrantedIsRefused, and learns nothing.
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

// TestAStaleStampIsStillCalledStale where the gate has seen a newer one.
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
// mark decides, and it is told each time.
func TestWhenTheStoreDoesNotSay(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var told atomic.Int64
	observe := func(e gate.Event) {
		if e.Kind == gate.Unsure {
			told.Add(1)
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
	if n := told.Load(); n != 1 { // the older one was refused before that
		t.Errorf("it was told %d times, want once", n)
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
