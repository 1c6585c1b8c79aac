package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// rig is a server on a loopback port, over a store in memory.
type rig struct {
	t     *testing.T
	srv   *Server
	front *httptest.Server
	mem   *mem.Store
}

func newRig(t *testing.T, o *Options) *rig { return rigOver(t, mem.New(nil), nil, o) }

// rigOver makes a rig over a store. wrap puts another store in front of it.
func rigOver(t *testing.T, base *mem.Store, wrap func(store.Store) store.Store, o *Options) *rig {
	t.Helper()
	var st store.Store = base
	if wrap != nil {
		st = wrap(base)
	}
	r := &rig{t: t, srv: New(st, o), mem: base}
	r.front = httptest.NewUnstartedServer(r.srv)
	r.front.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.front.Start()
	t.Cleanup(func() {
		r.srv.Drain()
		r.front.Close()
	})
	return r
}

// request makes a request with a body in JSON, none if it is "".
func (r *rig) request(method, path, body string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.front.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", wire.JSON)
	}
	return req
}

// do sends a request, and returns status and body.
func (r *rig) do(req *http.Request) (int, string) {
	r.t.Helper()
	resp, err := r.front.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (r *rig) post(path, body string) (int, string) {
	return r.do(r.request(http.MethodPost, path, body))
}
func (r *rig) get(path string) (int, string) { return r.do(r.request(http.MethodGet, path, "")) }

// refused checks status and code of a refusal.
func refused(t *testing.T, what string, status int, body string, want int, code wire.Code) {
	t.Helper()
	p, err := wire.ReadProblem([]byte(body))
	if err != nil || status != want || p.Code != code || p.Status != want {
		t.Errorf("%s: %d %s; want %d %s", what, status, body, want, code)
	}
}

func path(key, verb string) string {
	p := "/v1/leases/" + url.PathEscape(key)
	if verb != "" {
		p += "/" + verb
	}
	return p
}

func secret(n int) string { return fmt.Sprintf(`"secret":"%032x"`, n) }

// TestALeaseFromItsAcquireToItsRelease goes the way of a thin client.
func TestALeaseFromItsAcquireToItsRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	key := "reports/daily é"
	status, body := r.post(path(key, "acquire"), `{`+secret(1)+`,"owner":"ann","ttl":"1m"}`)
	var lease struct {
		Stamp string
		Now   time.Time
	}
	var rec tenure.Record
	if err := errors.Join(json.Unmarshal([]byte(body), &lease), json.Unmarshal([]byte(body), &rec)); err != nil ||
		status != http.StatusOK || rec.Owner != "ann" || rec.Key != key || lease.Now.IsZero() {
		t.Fatalf("acquire: %d %s, %v", status, body, err)
	}
	if stamp, err := fence.ParseStamp(lease.Stamp); err != nil || stamp != rec.Stamp() {
		t.Errorf("the stamp is %q, %v", lease.Stamp, err)
	}
	if status, again := r.post(path(key, "acquire"), `{`+secret(1)+`,"owner":"ann","ttl":"1m"}`); status != http.StatusOK ||
		!strings.Contains(again, fmt.Sprint(rec.Token)) {
		t.Errorf("the same secret asked again: %d %s", status, again)
	}
	status, body = r.post(path(key, "acquire"), `{`+secret(2)+`,"owner":"bob","ttl":"1m"}`)
	refused(t, "another's acquire", status, body, http.StatusConflict, wire.Held)
	for _, step := range []struct{ verb, body, want string }{
		{"renew", `{` + secret(1) + `,"ttl":"2m"}`, `"ttl":"2m0s"`},
		{"report", `{` + secret(1) + `,"progress":"half"}`, `"progress":"half"`},
		{"checkpoint", `{` + secret(1) + `,"checkpoint":"aGk="}`, `"checkpoint":"aGk="`},
		{"release", `{` + secret(1) + `}`, `"ended":"released"`},
		{"takeover", `{` + secret(3) + `,"owner":"opal","actor":"opal","note":"why","ttl":"1m"}`, `"cause":"operator"`},
		{"reserve", `{` + secret(4) + `,"owner":"bob","actor":"opal","note":"why","ttl":"1m"}`, `"state":"reserved"`},
		{"revoke", `{` + secret(5) + `,"actor":"opal","note":"why"}`, `"state":"free"`},
	} {
		if status, body := r.post(path(key, step.verb), step.body); status != http.StatusOK || !strings.Contains(body, step.want) {
			t.Errorf("%s: %d %s; want %s", step.verb, status, body, step.want)
		}
	}
	status, body = r.post(path(key, "renew"), `{`+secret(1)+`}`)
	refused(t, "renewing what was released", status, body, http.StatusConflict, wire.NotOwned)
	if status, body := r.get(path(key, "history")); status != http.StatusOK || !strings.Contains(body, `"cause":"first"`) {
		t.Errorf("history: %d %s", status, body)
	}
	if status, body := r.get(path(key, "")); status != http.StatusOK || !strings.Contains(body, `"history"`) {
		t.Errorf("get: %d %s", status, body)
	}
	if status, body := r.get("/v1/leases?prefix=reports/"); status != http.StatusOK || strings.Count(body, "\n") != 1 {
		t.Errorf("list: %d %s", status, body)
	}
}

// TestAStampIsVerified: the answer tells whether it was issued, and whether it
// is the newest.
func TestAStampIsVerified(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	grant := func(n int) tenure.Record {
		a := r.mem.Apply(t.Context(), []tenure.Request{{
			Verb: tenure.Takeover, Key: "a/b", Secret: tenure.Secret(fmt.Sprintf("%032x", n)), Owner: "ann", TTL: time.Minute,
			Actor: "opal", Note: "why",
		}})[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a.Record
	}
	old, now := grant(1).Stamp(), grant(2).Stamp()
	forged := now
	forged.Token++
	for what, c := range map[string]struct {
		stamp fence.Stamp
		want  wire.Verdict
	}{
		"the newest":    {now, wire.Verdict{Key: "a/b", Token: now.Token, Issued: true, Current: true, Newest: now.Token}},
		"an older one":  {old, wire.Verdict{Key: "a/b", Token: old.Token, Issued: true, Why: tenure.WhyTakenOver, Newest: now.Token}},
		"a made-up one": {forged, wire.Verdict{Key: "a/b", Token: forged.Token, Why: tenure.WhyUnknown, Newest: now.Token}},
	} {
		status, body := r.post("/v1/verify", `{"stamp":"`+c.stamp.String()+`"}`)
		var got wire.Verdict
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || got != c.want {
			t.Errorf("%s: %d %s, want %+v", what, status, body, c.want)
		}
	}
	status, body := r.post("/v1/verify", `{"stamp":"croft1:x"}`)
	refused(t, "no stamp", status, body, http.StatusBadRequest, wire.Invalid)
}

// TestBadRequestsAreRefused: nothing reaches the store, and the answer says
// what is wrong.
func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ok := `{"verb":"acquire","key":"a/b",` + secret(1) + `,"owner":"ann","ttl":"1m"}`
	many := `{"requests":[` + strings.Repeat(ok+`,`, wire.MaxBatch) + ok + `]}`
	for what, c := range map[string]struct {
		path, body string
		status     int
		code       wire.Code
		says       string
	}{
		"an unknown field":       {"/v1/apply", `{"requests":[{"verb":"acquire","force":true}]}`, 400, wire.Invalid, "requests[0].force"},
		"a duplicate member":     {"/v1/apply", `{"requests":[{"key":"a","key":"b"}]}`, 400, wire.Invalid, "requests[0].key: it is given twice"},
		"data behind the value":  {"/v1/apply", `{"requests":[]}{}`, 400, wire.Invalid, "body"},
		"a batch over the limit": {"/v1/apply", many, 400, wire.Invalid, "more than 1024"},
		"an oversized body":      {"/v1/apply", `{"requests":[],"x":"` + strings.Repeat("x", wire.MaxBody) + `"}`, 413, wire.TooLarge, "bytes"},
		"a bad key":              {path("a//b", "acquire"), `{}`, 400, wire.Invalid, "empty segment"},
		"no secret":              {path("a/b", "acquire"), `{"owner":"ann","ttl":"1m"}`, 400, wire.Invalid, "secret"},
		"a wait of another verb": {path("a/b", "renew"), `{` + secret(1) + `,"wait":"1s"}`, 400, wire.Invalid, "wait"},
		"a wait without end":     {path("a/b", "acquire"), `{` + secret(1) + `,"owner":"ann","ttl":"1m","wait":"1000h"}`, 400, wire.Invalid, "wait"},
		"a key for refusals":     {path("croft.refused/a", "acquire"), `{` + secret(1) + `,"owner":"ann","ttl":"1m"}`, 400, wire.Invalid, "another name"},
		"no such call":           {path("a/b", "steal"), `{}`, 404, wire.Invalid, "no such method and path"},
	} {
		status, body := r.post(c.path, c.body)
		refused(t, what, status, body, c.status, c.code)
		if !strings.Contains(body, c.says) {
			t.Errorf("%s: %s; want it to say %q", what, body, c.says)
		}
	}
	for what, path := range map[string]string{
		"an unknown parameter": "/v1/leases?prefx=a", "a parameter twice": "/v1/leases?prefix=a&prefix=b", "no key": "/v1/watch", "a prefix of no key": "/v1/leases?prefix=a%00",
		"a prefix that is no text":        "/v1/leases?prefix=%ff",
		"a parameter that cannot be read": "/v1/leases?prefix=a;b",
	} {
		status, body := r.get(path)
		refused(t, what, status, body, http.StatusBadRequest, wire.Invalid)
	}
	req := r.request(http.MethodGet, "/v1/now", "x")
	status, body := r.do(req)
	refused(t, "a read with a body", status, body, http.StatusBadRequest, wire.Invalid)
	if rec, err := r.mem.Get(t.Context(), "a/b"); err != nil || !rec.IsZero() {
		t.Errorf("refused requests left %+v, %v", rec, err)
	}
}

// TestAWebPageOfOthersChangesNothing: a browser on this machine sends what any
// page asks for.
func TestAWebPageOfOthersChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Hosts: []string{"Croft.Example."}})
	ok := `{` + secret(1) + `,"owner":"ann","ttl":"1m"}`
	for what, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"a form":                 {func(q *http.Request) { q.Header.Set("Content-Type", "text/plain") }, 400},
		"no type":                {func(q *http.Request) { q.Header.Del("Content-Type") }, 400},
		"another site":           {func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another origin":         {func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") }, 403},
		"a name of the page's":   {func(q *http.Request) { q.Host = "evil.example" }, 400},
		"a name of the server's": {func(q *http.Request) { q.Host = "croft.example:80" }, 200},
		"localhost":              {func(q *http.Request) { q.Host = "localhost:1" }, 200},
	} {
		req := r.request(http.MethodPost, path("a/b", "acquire"), ok)
		c.change(req)
		if status, body := r.do(req); status != c.status {
			t.Errorf("%s: %d %s, want %d", what, status, body, c.status)
		}
	}
}

// broken answers as its function says.
type broken struct {
	store.Store
	apply func(ctx context.Context, requests []tenure.Request) []store.Answer
}

func (b broken) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	return b.apply(ctx, requests)
}

// TestAnUnreachableStoreIsUnknownAndNeverLost, for a batch and for one call.
func TestAnUnreachableStoreIsUnknownAndNeverLost(t *testing.T) {
	t.Parallel()
	for what, err := range map[string]error{"unknown": store.Unknown(errors.New("inside")), "a fault": store.Fault(errors.New("inside"))} {
		r := rigOver(t, mem.New(nil), func(st store.Store) store.Store {
			return broken{st, func(_ context.Context, requests []tenure.Request) []store.Answer {
				answers := make([]store.Answer, len(requests))
				for i := range answers {
					answers[i].Err = err
				}
				return answers
			}}
		}, nil)
		for _, c := range [][2]string{
			{"/v1/apply", `{"requests":[{"verb":"renew","key":"a/b",` + secret(1) + `}]}`}, {path("a/b", "renew"), `{` + secret(1) + `}`},
		} {
			status, body := r.post(c[0], c[1])
			refused(t, what, status, body, http.StatusServiceUnavailable, wire.Unknown)
			p, _ := wire.ReadProblem([]byte(body))
			if store.IsFault(p.Err()) != store.IsFault(err) || strings.Contains(body, "inside") {
				t.Errorf("%s: %s", what, body)
			}
		}
	}
}

// TestAPanicIsOneAnswer: the handler's is a 500, and the store's is unknown to
// the client whose requests cause it. All others are served.
func TestAPanicIsOneAnswer(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	r := rigOver(t, mem.New(nil), func(st store.Store) store.Store {
		return broken{st, func(ctx context.Context, requests []tenure.Request) []store.Answer {
			for _, q := range requests {
				if q.Key == "bad/key" {
					panic("the store is broken")
				}
			}
			return st.Apply(ctx, requests)
		}}
	}, &Options{
		Access: panics{}, Observe: func(e Event) {
			if e.Err != nil && strings.Contains(e.Err.Error(), "panic") {
				told.Add(1)
			}
		},
	})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			key, want := fmt.Sprintf("good/%d", i), http.StatusOK
			if i%4 == 0 {
				key, want = "bad/key", http.StatusServiceUnavailable
			}
			if status, body := r.post(path(key, "acquire"), fmt.Sprintf(`{%s,"owner":"ann","ttl":"1m"}`, secret(i))); status != want {
				t.Errorf("%s: %d %s, want %d", key, status, body, want)
			}
		})
	}
	all.Wait()
	if told.Load() == 0 {
		t.Error("nobody was told of the panics")
	}
	status, body := r.get(path("panic/key", ""))
	refused(t, "a panic of the handler", status, body, http.StatusInternalServerError, wire.Unknown)
	if a := r.mem.Apply(t.Context(), []tenure.Request{{
		Verb: tenure.Acquire, Key: "panic/key", Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute,
	}})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	status, body = r.get("/v1/leases")
	refused(t, "a panic in a listing", status, body, http.StatusInternalServerError, wire.Unknown)
	if status, body := r.get("/v1/now"); status != http.StatusOK {
		t.Errorf("after it: %d %s", status, body)
	}
}

// panics is an access that fails on one key.
type panics struct{}

func (panics) Identify(*http.Request) (Identity, error) { return Identity{}, nil }

func (panics) May(_ Identity, _ Verb, key string) bool {
	if key == "panic/key" {
		panic("the access is broken")
	}
	return true
}

// TestClientsShareCallsOfTheStore: while a call is in flight, requests of many
// clients gather. Each gets its own answers.
func TestClientsShareCallsOfTheStore(t *testing.T) {
	t.Parallel()
	const clients = 300
	var calls, sent atomic.Int32
	gathered := make(chan struct{})
	var srv *Server
	r := rigOver(t, mem.New(nil), func(st store.Store) store.Store {
		return broken{st, func(ctx context.Context, requests []tenure.Request) []store.Answer {
			calls.Add(1)
			sent.Add(int32(len(requests)))
			<-gathered
			return st.Apply(ctx, requests)
		}}
	}, &Options{CallTimeout: time.Hour})
	srv = r.srv
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			q := tenure.Request{Verb: tenure.Acquire, Key: fmt.Sprintf("many/%d", i), Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
			answers, err := srv.batcher.apply(t.Context(), []tenure.Request{q})
			if err != nil || answers[0].Err != nil || answers[0].Record.Grant != q.Secret.Grant() {
				t.Errorf("client %d: %+v, %v", i, answers, err)
			}
		})
	}
	testenv.Eventually(t, "all requests wait or are in flight", func() error {
		srv.batcher.mu.Lock()
		defer srv.batcher.mu.Unlock()
		if n := srv.batcher.size + int(sent.Load()); n != clients {
			return fmt.Errorf("%d wait or are in flight", n)
		}
		return nil
	})
	close(gathered)
	all.Wait()
	if n := calls.Load(); n > 2*maxFlying {
		t.Errorf("%d clients cost the store %d calls", clients, n)
	}
}

// TestACallThatHangsIsOvertaken: others are served while one key has no answer,
// and a client that leaves takes nobody's answer along.
func TestACallThatHangsIsOvertaken(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	r := rigOver(t, mem.New(nil), func(st store.Store) store.Store {
		return broken{st, func(ctx context.Context, requests []tenure.Request) []store.Answer {
			if requests[0].Key == "hang/key" {
				<-hang
			}
			return st.Apply(ctx, requests)
		}}
	}, &Options{CallTimeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan store.Answer, 1)
	stuck := tenure.Request{Verb: tenure.Acquire, Key: "hang/key", Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	go func() {
		answers, _ := r.srv.batcher.apply(ctx, []tenure.Request{stuck})
		left <- answers[0]
	}()
	testenv.Eventually(t, "the call is in flight", func() error {
		r.srv.batcher.mu.Lock()
		defer r.srv.batcher.mu.Unlock()
		if r.srv.batcher.flying != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	if status, body := r.post(path("other/key", "acquire"), `{`+secret(1)+`,"owner":"ann","ttl":"1m"}`); status != http.StatusOK {
		t.Errorf("beside a call that hangs: %d %s", status, body)
	}
	cancel()
	if a := <-left; !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.Canceled) {
		t.Errorf("the client that left: %v, want unknown", a.Err)
	}
	close(hang)
	testenv.Eventually(t, "the call is over", func() error {
		r.srv.batcher.mu.Lock()
		defer r.srv.batcher.mu.Unlock()
		if b := r.srv.batcher; b.flying != 0 || b.hanging != 0 || b.size != 0 {
			return fmt.Errorf("%d fly, %d hang, %d wait", b.flying, b.hanging, b.size)
		}
		return nil
	})
	if answers, err := r.srv.batcher.apply(t.Context(), []tenure.Request{stuck}); err != nil || answers[0].Record.Terms != 1 {
		t.Errorf("asked again: %+v, %v; want the one grant", answers, err)
	}
}

// TestABatchKeepsItsOrder: a client's requests on one key are carried out in
// their order.
func TestABatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			one := fmt.Sprintf(`"key":"order/%d",%s`, i, secret(i))
			status, body := r.post("/v1/apply", `{"requests":[{"verb":"acquire",`+one+`,"owner":"ann","ttl":"1m"},`+
				`{"verb":"report",`+one+`,"progress":"1"},{"verb":"report",`+one+`,"progress":"2"},{"verb":"release",`+one+`}]}`)
			if status != http.StatusOK || strings.Contains(body, `"error"`) || !strings.Contains(body, `"progress":"2"`) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	all.Wait()
}

// TestAWaitingAcquireIsGrantedAfterARelease, also if the connection breaks
// while it waits: the same secret asked again finds the same answer.
func TestAWaitingAcquireIsGrantedAfterARelease(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if status, body := r.post(path("a/b", "acquire"), `{`+secret(1)+`,"owner":"ann","ttl":"1h"}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	asked := `{` + secret(2) + `,"owner":"bob","ttl":"1h","wait":"30m"}`
	ctx, cancel := context.WithCancel(t.Context())
	broke := make(chan error, 1)
	go func() {
		resp, err := r.front.Client().Do(r.request(http.MethodPost, path("a/b", "acquire"), asked).WithContext(ctx))
		if err == nil {
			err = resp.Body.Close()
		}
		broke <- err
	}()
	r.waits("a/b", 1)
	cancel()
	if err := <-broke; !errors.Is(err, context.Canceled) {
		t.Fatalf("the broken call: %v", err)
	}
	r.waits("a/b", 0)
	got := make(chan string, 1)
	go func() {
		_, body := r.post(path("a/b", "acquire"), asked)
		got <- body
	}()
	r.waits("a/b", 1)
	if status, body := r.post(path("a/b", "release"), `{`+secret(1)+`}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	if body := <-got; !strings.Contains(body, `"owner":"bob"`) || !strings.Contains(body, `"terms":2`) {
		t.Errorf("the waiting acquire: %s", body)
	}
	status, body := r.post(path("a/b", "acquire"), `{`+secret(3)+`,"owner":"cleo","ttl":"1h","wait":"20ms"}`)
	refused(t, "a wait that is over", status, body, http.StatusConflict, wire.Held)
}

// TestAWaitKeepsNoRoomForABody: an acquire that waits may have come in chunks,
// so that its length was not known.
func TestAWaitKeepsNoRoomForABody(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if a := r.mem.Apply(t.Context(), []tenure.Request{acquireOf("a/b", "ann")})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	req := r.request(http.MethodPost, path("a/b", "acquire"), `{`+secret(2)+`,"owner":"bob","ttl":"1h","wait":"30m"}`)
	req.ContentLength = -1
	answered := make(chan string, 1)
	go func() {
		_, body := r.do(req)
		answered <- body
	}()
	r.waits("a/b", 1)
	if n := len(r.srv.long) + len(r.srv.calls); n != 0 {
		t.Errorf("it keeps %d slots of calls and long bodies", n)
	}
	r.srv.Drain()
	if body := <-answered; !strings.Contains(body, string(wire.Busy)) {
		t.Errorf("after draining: %s", body)
	}
}

// waits waits until so many wait for a key.
func (r *rig) waits(key string, want int) {
	r.t.Helper()
	testenv.Eventually(r.t, "they wait", func() error {
		r.srv.waiters.mu.Lock()
		defer r.srv.waiters.mu.Unlock()
		if n := r.srv.waiters.keys[key]; n != want {
			return fmt.Errorf("%d wait, want %d", n, want)
		}
		return nil
	})
}

// stream opens a stream, and returns its lines.
func (r *rig) stream(path string) (lines *bufio.Scanner, end func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	resp, err := r.front.Client().Do(r.request(http.MethodGet, path, "").WithContext(ctx)) //nolint:bodyclose // end closes it
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s", path, resp.Status)
	}
	return bufio.NewScanner(resp.Body), func() {
		cancel()
		_ = resp.Body.Close()
	}
}

// next returns the next line that begins so, "" if the stream is over.
func next(lines *bufio.Scanner, prefix string) string {
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), prefix) {
			return lines.Text()
		}
	}
	return ""
}

// TestStreamsTellOfChangesAndActs, and end when the server drains.
func TestStreamsTellOfChangesAndActs(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Heartbeat: 10 * time.Millisecond})
	watch, end := r.stream("/v1/watch?key=a%2Fb")
	defer end()
	acts, endActs := r.stream("/v1/acts")
	defer endActs()
	if status, body := r.post(path("a/b", "takeover"), `{`+secret(1)+`,"owner":"opal","actor":"opal","note":"why","ttl":"1m"}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	if got := next(watch, "data:"); got != `data: {"key":"a/b"}` {
		t.Errorf("the watch says %q", got)
	}
	if got := next(acts, "data:"); got != `data: {"key":"a/b"}` {
		t.Errorf("the acts say %q", got)
	}
	for range 3 {
		if got := next(acts, ":"); got != ":" {
			t.Errorf("no heartbeat: %q", got)
		}
	}
	if status, _ := r.get("/readyz"); status != http.StatusOK {
		t.Errorf("ready: %d", status)
	}
	r.srv.Drain()
	if got := next(watch, "data:") + next(acts, "data:"); got != "" {
		t.Errorf("after draining: %q", got)
	}
	if status, _ := r.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("ready while draining: %d", status)
	}
	if status, _ := r.get("/healthz"); status != http.StatusOK {
		t.Errorf("healthy while draining: %d", status)
	}
	if status, body := r.post(path("a/b", "release"), `{`+secret(1)+`}`); status != http.StatusOK {
		t.Errorf("a call while draining: %d %s", status, body)
	}
}

// TestStreamsAreBounded: one too many is refused, and there is room again when
// one ends. Calls are served beside them.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{MaxStreams: 3, MaxCalls: 2})
	var ends []func()
	for range 3 {
		_, end := r.stream("/v1/acts")
		ends = append(ends, end)
	}
	status, body := r.get("/v1/watch?key=a")
	refused(t, "one stream too many", status, body, http.StatusServiceUnavailable, wire.Busy)
	if status, body := r.get("/v1/now"); status != http.StatusOK {
		t.Errorf("a call beside the streams: %d %s", status, body)
	}
	ends[0]()
	testenv.Eventually(t, "there is room again", func() error {
		if status, body := r.get("/v1/watch?key=..%2F"); status != http.StatusBadRequest {
			return errors.New(body)
		}
		select {
		case r.srv.streams <- struct{}{}:
			<-r.srv.streams
			return nil
		default:
			return errors.New("full")
		}
	})
	for _, end := range ends {
		end()
	}
}

// pausing is a store that keeps ann waiting.
type pausing struct {
	*mem.Store
	hold <-chan struct{}
}

func (p pausing) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	if strings.HasPrefix(requests[0].Key, "ann/") {
		<-p.hold
	}
	return p.Store.Apply(ctx, requests)
}

// TestOneClientLeavesRoomForOthers: it has a share of streams, calls and
// requests, and no more.
func TestOneClientLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	base := mem.New(nil)
	r := rigOver(t, base, func(store.Store) store.Store { return pausing{base, hold} },
		&Options{Access: rules{"ann": "ann/", "bob": "bob/"}, MaxCalls: 20, MaxStreams: 3, CallTimeout: time.Hour})
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusOK} {
		name := []string{"ann", "ann", "bob"}[i]
		resp, err := r.front.Client().Do(as(name, r.request(http.MethodGet, "/v1/acts", "")))
		if err != nil || resp.StatusCode != want {
			t.Fatalf("a stream of %s: %v, %v; want %d", name, resp, err, want)
		}
		defer resp.Body.Close()
	}
	batch := func(name string, n int) *http.Request {
		one := `{"verb":"acquire","key":"` + name + `/key",` + secret(1) + `,"ttl":"1m"}`
		return as(name, r.request(http.MethodPost, "/v1/apply", `{"requests":[`+strings.Repeat(one+`,`, n-1)+one+`]}`))
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer close(hold)
	for range maxWaiting / 4 / wire.MaxBatch {
		all.Go(func() { r.do(batch("ann", wire.MaxBatch)) })
	}
	testenv.Eventually(t, "ann has taken her share", func() error {
		r.srv.batchShares.mu.Lock()
		defer r.srv.batchShares.mu.Unlock()
		if n := r.srv.batchShares.taken["ann"]; n != maxWaiting/4 {
			return fmt.Errorf("%d are taken", n)
		}
		return nil
	})
	status, body := r.do(batch("ann", 1))
	refused(t, "one request more", status, body, http.StatusServiceUnavailable, wire.Busy)
	for range 10 - maxWaiting/4/wire.MaxBatch {
		all.Go(func() {
			r.do(as("ann", r.request(http.MethodPost, path("ann/key", "acquire"), `{`+secret(1)+`,"ttl":"1m"}`)))
		})
	}
	testenv.Eventually(t, "ann makes as many calls as she may", func() error {
		if n := len(r.srv.calls); n != 10 {
			return fmt.Errorf("%d calls", n)
		}
		return nil
	})
	status, body = r.do(as("ann", r.request(http.MethodGet, "/v1/now", "")))
	refused(t, "one call more", status, body, http.StatusServiceUnavailable, wire.Busy)
	if status, body := r.do(as("bob", r.request(http.MethodGet, "/v1/now", ""))); status != http.StatusOK {
		t.Errorf("bob's call: %d %s", status, body)
	}
}

// TestASlowClientHoldsNobodyUp sends half a body and then nothing. Others are
// served, and the slow one has no slot of the server for long.
func TestASlowClientHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{MaxCalls: 2})
	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /v1/apply HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
		"Content-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it has a slot", func() error {
		if len(r.srv.calls) != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	if status, body := r.get("/v1/now"); status != http.StatusOK {
		t.Errorf("beside a slow client: %d %s", status, body)
	}
	answer, err := io.ReadAll(conn) // ends when the server gives up
	// Nothing is wrong with the request, so no lease may end by this answer.
	if err != nil || !bytes.Contains(answer, []byte(" 408 ")) || !bytes.Contains(answer, []byte(`"code":"unknown"`)) {
		t.Errorf("the slow client is told %q, %v", answer, err)
	}
}

// rules is an access with a name in the token, and a prefix for each name.
type rules map[string]string

func (rules) Identify(r *http.Request) (Identity, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Identity{}, errors.New("send a token")
	}
	return Identity{Name: name}, nil
}

func (l rules) May(id Identity, verb Verb, key string) bool {
	return strings.HasPrefix(key, l[id.Name]) && l[id.Name] != "" && (verb != Operate || id.Name == "opal")
}

// as adds a token to a request.
func as(name string, req *http.Request) *http.Request {
	req.Header.Set("Authorization", "Bearer "+name)
	return req
}

// TestAHiddenKeyDoesNotExist: the answers about it are the same, byte by byte,
// as those about a key that was never used.
func TestAHiddenKeyDoesNotExist(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Access: rules{"ann": "ann/", "bob": "bob/", "opal": "ann/"}})
	acquire := func(name, key string, n int) (int, string) {
		return r.do(as(name, r.request(http.MethodPost, path(key, "acquire"), `{`+secret(n)+`,"ttl":"1m","owner":"somebody"}`)))
	}
	status, body := acquire("ann", "ann/job", 1)
	if status != http.StatusOK || !strings.Contains(body, `"owner":"ann"`) {
		t.Fatalf("%d %s; want ann as the owner", status, body)
	}
	status, body = r.get(path("ann/job", ""))
	refused(t, "no identity", status, body, http.StatusUnauthorized, wire.Unauthenticated)

	for _, c := range [][3]string{
		{http.MethodGet, "", ""},
		{http.MethodGet, "history", ""},
		{http.MethodPost, "acquire", `{` + secret(2) + `,"ttl":"1m"}`},
		{http.MethodPost, "renew", `{` + secret(1) + `}`},
		{http.MethodPost, "revoke", `{` + secret(2) + `,"note":"why"}`},
	} {
		status, hidden := r.do(as("bob", r.request(c[0], path("ann/job", c[1]), c[2])))
		_, absent := r.do(as("bob", r.request(c[0], path("ann/none", c[1]), c[2])))
		refused(t, "another's key: "+c[1], status, hidden, http.StatusNotFound, wire.NotFound)
		if c[0] == http.MethodGet { // bob may read this one, and it was never used
			_, absent = r.do(as("bob", r.request(c[0], path("bob/none", c[1]), c[2])))
		}
		if hidden != absent {
			t.Errorf("%s: %s\nabout a key that is not there: %s", c[1], hidden, absent)
		}
	}
	if _, body := r.do(as("ann", r.request(http.MethodGet, path("ann/none", ""), ""))); !strings.Contains(body, string(wire.NotFound)) {
		t.Errorf("a key of one's own that is not there: %s", body)
	}
	if _, body := r.do(as("bob", r.request(http.MethodGet, "/v1/leases", ""))); body != "" {
		t.Errorf("bob's listing shows %s", body)
	}
	status, body = r.do(as("bob", r.request(http.MethodPost, "/v1/apply",
		`{"requests":[{"verb":"release","key":"ann/job",`+secret(1)+`},{"verb":"acquire","key":"bob/job",`+secret(3)+`,"ttl":"1m"}]}`)))
	answers, err := wire.ReadAnswers([]byte(body), []tenure.Request{{Key: "ann/job"}, {Key: "bob/job"}})
	if err != nil || status != http.StatusOK || !store.IsFault(answers[0].Err) || answers[1].Err != nil || answers[1].Record.Owner != "bob" {
		t.Errorf("a batch about a hidden key and an own one: %d %s", status, body)
	}
	status, body = r.do(as("ann", r.request(http.MethodPost, path("ann/job", "revoke"), `{`+secret(4)+`,"note":"why"}`)))
	refused(t, "a visible key, and no right", status, body, http.StatusForbidden, wire.NotAllowed)
	status, body = r.do(as("ann", r.request(http.MethodPost, "/v1/sweep", `{}`)))
	refused(t, "sweeping", status, body, http.StatusForbidden, wire.NotAllowed)
	status, body = r.do(as("opal", r.request(http.MethodPost, path("ann/job", "takeover"), `{`+secret(5)+`,"ttl":"1m","actor":"ann","note":"why"}`)))
	if status != http.StatusOK || !strings.Contains(body, `"actor":"opal"`) || !strings.Contains(body, `"owner":"opal"`) {
		t.Errorf("an act by hand: %d %s; want opal as actor and owner", status, body)
	}
}

// TestAHolderMayNoteARefusal about keys that it may work on, and no others.
func TestAHolderMayNoteARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Access: rules{"ann": "ann/"}})
	note := func(key, about string, n int) int {
		text, _ := json.Marshal(`{"act":"write","code":"stale","key":"` + about + `","token":7}`)
		status, _ := r.do(as("ann", r.request(http.MethodPost, path(key, "revoke"), `{`+secret(n)+`,"actor":"old owner","note":`+string(text)+`}`)))
		return status
	}
	if status := note("croft.refused/ann", "ann/job", 1); status != http.StatusOK {
		t.Errorf("a note about a key of one's own: %d", status)
	}
	for i, c := range [][2]string{{"croft.refused/bob", "bob/job"}, {"croft.refused/bob", "ann/job"}, {"ann/job", "ann/job"}} {
		if status := note(c[0], c[1], i+2); status == http.StatusOK {
			t.Errorf("a note at %s about %s is admitted", c[0], c[1])
		}
	}
	got, err := refusals.Read(t.Context(), r.mem, "")
	if err != nil || len(got) != 1 || got[0].Owner != "old owner" {
		t.Errorf("the notes are %+v, %v", got, err)
	}
}

// TestNobodyClosesAKeyForGood: guards refuse a token that no clock could show,
// and every later token of the key would be higher.
func TestNobodyClosesAKeyForGood(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Access: rules{"ann": "ann/"}})
	status, body := r.do(as("ann", r.request(http.MethodPost, path("ann/job", "acquire"),
		fmt.Sprintf(`{%s,"ttl":"1m","above":%d}`, secret(1), tenure.MaxAbove))))
	refused(t, "a token of another century", status, body, http.StatusBadRequest, wire.Invalid)
}

// TestAListingIsNotCutUnseen: a client or proxy of HTTP/1.0 could not tell its
// end from a broken connection.
func TestAListingIsNotCutUnseen(t *testing.T) {
	t.Parallel()
	srv := New(mem.New(nil), nil)
	defer srv.Drain()
	req := httptest.NewRequest(http.MethodGet, "/v1/leases", nil)
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.0", 1, 0
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, req)
	refused(t, "a listing for HTTP/1.0", w.Code, w.Body.String(), http.StatusBadRequest, wire.Invalid)
}

// TestANoteShowsNoOtherNotes: the notes about a namespace share a record. A
// client that leaves a note there again does not learn of hidden keys.
func TestANoteShowsNoOtherNotes(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Access: rules{"ann": "a/ann", "bob": "a/bob"}})
	body := func(about string, n int) string {
		text, _ := json.Marshal(`{"act":"write","code":"stale","key":"` + about + `","token":7}`)
		return `{` + secret(n) + `,"verb":"revoke","key":"croft.refused/a","actor":"old owner","note":` + string(text) + `}`
	}
	leave := func(name, about string, n int) (int, string) {
		return r.do(as(name, r.request(http.MethodPost, "/v1/apply", `{"requests":[`+body(about, n)+`]}`)))
	}
	leave("ann", "a/ann", 1)
	leave("bob", "a/bob", 2)
	if status, text := leave("ann", "a/ann", 1); status != http.StatusOK || !strings.Contains(text, string(wire.NotOwned)) ||
		strings.Contains(text, "bob") {
		t.Errorf("ann's old note, left again: %d %s", status, text)
	}
	one := strings.Replace(body("a/ann", 1), `"verb":"revoke","key":"croft.refused/a",`, "", 1)
	status, text := r.do(as("ann", r.request(http.MethodPost, path("croft.refused/a", "revoke"), one)))
	refused(t, "the same, in a call of its own", status, text, http.StatusConflict, wire.NotOwned)
	if strings.Contains(text, "bob") {
		t.Errorf("it shows another's note: %s", text)
	}
}

// TestOnlyFailuresAreToldAsFailures: a client's mistake, and a key that is
// held, are no errors for the operator of the server.
func TestOnlyFailuresAreToldAsFailures(t *testing.T) {
	t.Parallel()
	answered := make(chan Event, 4)
	r := newRig(t, &Options{Observe: func(e Event) {
		if e.Kind == Answered {
			answered <- e
		}
	}})
	if a := r.mem.Apply(t.Context(), []tenure.Request{acquireOf("a/b", "ann")})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, c := range [][2]string{{"a//b", `{}`}, {"a/b", `{` + secret(2) + `,"owner":"bob","ttl":"1m"}`}} {
		r.post(path(c[0], "acquire"), c[1])
		if e := <-answered; e.Err != nil || e.Code == "" {
			t.Errorf("%s: told %v, code %q; want the code alone", c[0], e.Err, e.Code)
		}
	}
}

// TestActsByHandAreAudited with identity and address.
func TestActsByHandAreAudited(t *testing.T) {
	t.Parallel()
	acted := make(chan Event, 4)
	r := newRig(t, &Options{Access: rules{"opal": "a/", "ann": "a/"}, Observe: func(e Event) {
		if e.Kind == Acted {
			acted <- e
		}
	}})
	for i, name := range []string{"opal", "ann"} {
		r.do(as(name, r.request(http.MethodPost, path("a/b", "revoke"), fmt.Sprintf(`{%s,"note":"why"}`, secret(i)))))
		e := <-acted
		if e.Identity != name || e.Key != "a/b" || e.Act != tenure.Revoke || e.Note != "why" || e.Remote == "" || (e.Err == nil) != (name == "opal") {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// lapsing is rules whose tokens expire.
type lapsing struct {
	rules
	until time.Time
}

func (l lapsing) Identify(r *http.Request) (Identity, error) {
	id, err := l.rules.Identify(r)
	id.Until = l.until
	return id, err
}

// TestAStreamEndsWithItsToken, and so does an acquire that waits: the client
// comes again with a newer token.
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Access: lapsing{rules{"ann": "a/"}, time.Now().Add(100 * time.Millisecond)}})
	r.stampOf("a/b", 1)
	for _, req := range []*http.Request{
		r.request(http.MethodGet, "/v1/watch?key=a%2Fb", ""),
		r.request(http.MethodPost, path("a/b", "acquire"), `{`+secret(2)+`,"owner":"ann","ttl":"1m","wait":"1h"}`),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp, err := r.front.Client().Do(as("ann", req.WithContext(ctx)))
		if err != nil {
			t.Fatalf("%s: %v", req.URL, err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Errorf("%s: %s %s, %v; want it to end", req.URL, resp.Status, text, err)
		}
	}
}
