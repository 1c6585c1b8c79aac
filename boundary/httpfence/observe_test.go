package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store/refusals"
)

// heard records events.
type heard struct {
	mu     sync.Mutex
	events []gate.Event
}

func (h *heard) hear(e gate.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// take returns the events since the last call, as a text of kinds and codes.
func (h *heard) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, e := range h.events {
		switch e.Kind {
		case gate.Observed:
			all = append(all, fmt.Sprintf("observed %d %s", e.Status, e.Code))
		default:
			all = append(all, string(e.Kind))
		}
	}
	h.events = nil
	return strings.Join(all, ", ")
}

// TestAProxyThatObservesRefusesNothing: every request reaches the service, and
// the proxy tells of those that it would have refused. The marks move as they
// would if it refused them.
func TestAProxyThatObservesRefusesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var h heard
	_, front := w.proxy(t, "gate", http.HandlerFunc(echo), func(o *ProxyOptions) {
		o.RefuseNothing, o.Observe, o.MaxBody = true, h.hear, 4
		o.Rules = append(o.Rules, rule(t, "/keyed/{id} for jobs/b"))
		o.Exempt = []Rule{rule(t, "POST /search")}
	})
	other := newer
	other.Key = "jobs/b"
	forged := newer
	forged.Grant = older.Grant
	for _, c := range []struct {
		what, method, path string
		stamp              fence.Stamp
		told               string
		mark               fence.Stamp
	}{
		{"a read", "GET", "/r/1", fence.Stamp{}, "", fence.Stamp{}},
		{"an exempt request", "POST", "/search", fence.Stamp{}, "", fence.Stamp{}},
		{"the first write", "PUT", "/r/1", numbered(older, 7), "write_admitted", numbered(older, 7)},
		{"a late copy", "PUT", "/r/1", numbered(older, 7), "observed 409 repeated", numbered(older, 7)},
		{"the next", "PUT", "/r/1", numbered(older, 8), "write_admitted", numbered(older, 8)},
		{"the successor's", "PUT", "/r/1", newer, "write_admitted", newer},
		{"the older owner's", "PUT", "/r/1", older, "observed 409 stale", newer},
		{"another grant's", "PUT", "/r/1", forged, "observed 409 collision", newer},
		{"another key's", "PUT", "/r/1", other, "observed 409 wrong_key", newer},
		{"a write without a stamp", "PUT", "/r/1", fence.Stamp{}, "observed 428 invalid", newer},
		{"a write that no rule fits", "PUT", "/x", newer, "observed 403 invalid", newer},
		{"a write for a rule's other key", "PUT", "/keyed/1", newer, "observed 409 wrong_key", newer},
		{"a read with a body", "OPTIONS", "/r/1", fence.Stamp{}, "observed 400 invalid", newer},
	} {
		body := "longer than MaxBody"
		if c.method == "GET" {
			body = ""
		}
		r := send(t, c.method, front.URL+c.path, c.stamp, body)
		r.want(t, c.what, 200, "")
		if want := c.method + " " + c.path + " " + body; r.body != want {
			t.Errorf("%s: the service got %q, want %q", c.what, r.body, want)
		}
		if told := h.take(); told != c.told {
			t.Errorf("%s: the proxy told %q, want %q", c.what, told, c.told)
		}
		if mark := w.mark(t, "r/1"); mark != c.mark.Mark() {
			t.Errorf("%s: the mark is %+v, want %+v", c.what, mark, c.mark)
		}
	}
}

// TestObservedWritesAreOnRecord: with the owner, and apart from refusals.
func TestObservedWritesAreOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var h heard
	_, front := w.proxy(t, "gate", http.HandlerFunc(echo), func(o *ProxyOptions) {
		o.RefuseNothing, o.Current, o.Observe = true, w.follower(t), h.hear
	})
	ann := w.lease(t, "jobs/a", "ann")
	taken, err := newClient(t, w.store, "bob").Takeover(t.Context(), "jobs/a", croft.ByHand{Note: "stuck"})
	if err != nil {
		t.Fatal(err)
	}
	bob := taken.Deed.Stamp()
	invented := bob
	invented.Token += 1000
	url := front.URL + "/r/1"
	send(t, "PUT", url, ann.Stamp(), "x").want(t, "the replaced owner's", 200, "")
	send(t, "PUT", url, invented, "x").want(t, "an invented stamp's", 200, "")
	if mark := w.mark(t, "r/1"); !mark.IsZero() {
		t.Errorf("a write that would have been refused has moved the mark to %+v", mark)
	}
	send(t, "PUT", url, bob, "x").want(t, "the owner's", 200, "")
	send(t, "PUT", url, ann.Stamp(), "x").want(t, "the replaced owner's", 200, "")
	if told := h.take(); told != "observed 409 not_owned, observed 409 not_owned, write_admitted, observed 409 stale" {
		t.Errorf("the proxy told %q", told)
	}
	if mark := w.mark(t, "r/1"); mark != bob.Mark() {
		t.Errorf("the mark is %+v, want %+v", mark, bob)
	}
	testenv.Eventually(t, "the notes", func() error {
		all, err := refusals.Read(t.Context(), w.store, "jobs/")
		if err != nil {
			return err
		}
		counts := map[string]int{}
		for _, r := range all {
			if r.Target != "" { // a refused renewal of the replaced owner has none
				counts[string(r.Kind())+" "+r.Owner+" "+r.Target] += r.Count
			}
		}
		if counts["observed ann http:r/1"] != 2 || counts["observed  http:r/1"] != 1 || len(counts) != 2 {
			return fmt.Errorf("noted: %v", counts)
		}
		return nil
	})
	// Without RefuseNothing the same marks refuse at once.
	_, strict := w.proxy(t, "strict", http.HandlerFunc(echo), func(o *ProxyOptions) { o.Served = w.marks.served })
	send(t, "PUT", strict.URL+"/r/1", ann.Stamp(), "x").want(t, "after the trial, the replaced owner's", 409, "stale")
}

// markAfterAnInventedWrite returns the mark that a gate which refuses nothing
// leaves after a write under a stamp that the store never issued. away says
// that the store does not answer.
func markAfterAnInventedWrite(t *testing.T, away, flawed bool) fence.Mark {
	t.Helper()
	w := newWorld()
	g := w.gate(t, "gate", func(o *Options) {
		o.RefuseNothing, o.Current = true, w.follower(t)
		if away {
			o.Current = unsure{}
		}
	})
	g.core.Flaw.JudgesByMarkAlone = flawed
	w.lease(t, "jobs/a", "ann")
	send(t, "PUT", serve(t, g), newer, "").want(t, "an invented stamp's write", 200, "")
	return w.mark(t, "r/1")
}

// TestAnInventedStampMovesNoMark: a trial must not shut out the owners that
// come after it.
func TestAnInventedStampMovesNoMark(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		if mark := markAfterAnInventedWrite(t, away, false); !mark.IsZero() {
			t.Errorf("the store is away: %v; the mark is %+v", away, mark)
		}
	}
}

// TestAJudgeThatMovesTheMarkIsCaught: a broken gate raises the mark for a write
// that the store would refuse.
func TestAJudgeThatMovesTheMarkIsCaught(t *testing.T) {
	t.Parallel()
	t.Run("judges by the mark alone", func(t *testing.T) {
		for _, away := range []bool{false, true} {
			mark := markAfterAnInventedWrite(t, away, true)
			if mark.IsZero() {
				t.Fatalf("the store is away: %v; not noticed", away)
			}
			t.Logf("caught by %q: the mark is %+v", "an invented stamp moves no mark", mark)
		}
	})
}

// TestAProxyThatObservesDoesNotDependOnItsStores: it sends writes on when
// neither the store nor the marks answer, and says that it could not judge.
func TestAProxyThatObservesDoesNotDependOnItsStores(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.marks.fail(errors.New("no route"))
	var h heard
	_, front := w.proxy(t, "gate", http.HandlerFunc(echo), func(o *ProxyOptions) {
		o.RefuseNothing, o.Current, o.Observe = true, unsure{}, h.hear
	})
	send(t, "PUT", front.URL+"/r/1", newer, "x").want(t, "a write", 200, "")
	if told := h.take(); told != "write_unsure, observed 503 unknown" {
		t.Errorf("the proxy told %q", told)
	}
}

// hangingCheck is a check that does not answer.
type hangingCheck struct{}

func (hangingCheck) Check(ctx context.Context, _ fence.Stamp) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestAHangingStoreDelaysAnObservedWriteOnly: it is sent on after a bounded
// time.
func TestAHangingStoreDelaysAnObservedWriteOnly(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var h heard
	_, front := w.proxy(t, "gate", http.HandlerFunc(echo), func(o *ProxyOptions) {
		o.RefuseNothing, o.Current, o.Observe = true, hangingCheck{}, h.hear
	})
	send(t, "PUT", front.URL+"/r/1", newer, "x").want(t, "a write", 200, "")
	if told := h.take(); !strings.HasPrefix(told, "write_unsure") {
		t.Errorf("the proxy told %q", told)
	}
}

// TestObservedWritesDoNotWaitForEachOther: the service gets them as it would
// without the proxy. Nor does the proxy take a lease.
func TestObservedWritesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld()
	both := make(chan struct{}, 2)
	release := make(chan struct{})
	service := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		both <- struct{}{}
		<-release
	})
	_, front := w.proxy(t, "gate", service, func(o *ProxyOptions) { o.RefuseNothing = true })
	var sent sync.WaitGroup
	for _, s := range []fence.Stamp{older, newer} {
		sent.Go(func() { send(t, "PUT", front.URL+"/r/1", s, "x").want(t, "a write", 200, "") })
	}
	<-both
	<-both
	for rec, err := range w.store.List(t.Context(), DefaultLeasePrefix) {
		t.Errorf("the proxy holds %s, %v", rec.Key, err)
	}
	close(release)
	sent.Wait()
}

// TestAProxyThatObservesKeepsItsName: a web page must not reach the service
// through a name of its own.
func TestAProxyThatObservesKeepsItsName(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var l journal
	_, front := w.proxy(t, "gate", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { l.add("%s", r.URL) }),
		func(o *ProxyOptions) { o.RefuseNothing = true })
	req := httptest.NewRequestWithContext(t.Context(), "PUT", front.URL+"/r/1", nil)
	req.RequestURI, req.Host = "", "evil.example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest || l.String() != "" {
		t.Errorf("%s; the service got %q", resp.Status, l.String())
	}
}

// TestObservingMiddlewareHandsTheStampOn: the handler gets it also if the gate
// would refuse the write.
func TestObservingMiddlewareHandsTheStampOn(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var mu sync.Mutex
	var got []fence.Token
	g := w.gate(t, "gate", func(o *Options) { o.RefuseNothing = true })
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s, _ := StampFrom(r.Context())
		mu.Lock()
		defer mu.Unlock()
		got = append(got, s.Token)
	})))
	defer front.Close()
	for _, s := range []fence.Stamp{newer, older, {}} {
		send(t, "PUT", front.URL+"/r/1", s, "").want(t, "a write", 200, "")
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []fence.Token{newer.Token, older.Token, 0}; !slices.Equal(got, want) {
		t.Errorf("the handler got %v, want %v", got, want)
	}
}

// TestDecisionsWithoutTheStoreAreOnRecord: the store has notes of writes that
// were let in by the mark alone, and of those that were refused.
func TestDecisionsWithoutTheStoreAreOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld()
	ann := w.lease(t, "jobs/a", "ann").Stamp()
	send(t, "PUT", serve(t, w.gate(t, "strict", func(o *Options) { o.Current = unsure{} })), ann, "").want(t, "by default", 503, "unknown")
	send(t, "PUT", serve(t, w.gate(t, "open", func(o *Options) { o.Current, o.AdmitUnsure = unsure{}, true })), ann, "").want(t, "with AdmitUnsure", 200, "")
	testenv.Eventually(t, "the notes", func() error {
		all, err := refusals.Read(t.Context(), w.store, "jobs/")
		if err != nil {
			return err
		}
		counts := map[bool]int{}
		for _, r := range all {
			if r.Kind() != refusals.Unsure || r.Owner != "ann" || r.Target != "http:r/1" {
				return fmt.Errorf("noted: %+v", r)
			}
			counts[r.Admitted] += r.Count
		}
		if counts[true] != 1 || counts[false] != 1 {
			return fmt.Errorf("noted: %v", counts)
		}
		return nil
	})
}
