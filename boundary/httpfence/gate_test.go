package httpfence

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

// TestTheMiddlewareDecidesByTheLaw: admitted writes reach the handler. A
// refused write changes nothing, and the answer says why.
func TestTheMiddlewareDecidesByTheLaw(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	g := w.gate(t, "one", func(o *Options) {
		o.Rules = []Rule{rule(t, "/mine/{id} for jobs/a"), rule(t, "/r/{id}")}
	})
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s, ok := StampFrom(r.Context())
		seen.add("%s%s:%d.%d:%v", r.Method, r.URL.Path, s.Token, s.Seq, ok)
	})))
	defer front.Close()
	collided := newer
	collided.Grant = "00000000000000000000000000000000"
	elsewhere := fence.Stamp{Key: "jobs/b", Token: 99, Grant: newer.Grant}
	for _, c := range []struct {
		what, request string
		stamp         fence.Stamp
		status        int
		code          string
	}{
		{"the first owner", "PUT /r/1", older, 200, ""},
		{"again", "POST /r/1", older, 200, ""},
		{"the second owner", "PUT /r/1", newer, 200, ""},
		{"the first, awake again", "PUT /r/1", older, 409, "stale"},
		{"another resource is another fence", "PUT /r/2", older, 200, ""},
		{"numbered", "PUT /r/1", numbered(newer, 5), 200, ""},
		{"a copy", "PUT /r/1", numbered(newer, 5), 409, "repeated"},
		{"a late one", "PUT /r/1", numbered(newer, 4), 409, "repeated"},
		{"the next", "PUT /r/1", numbered(newer, 6), 200, ""},
		{"unnumbered", "PUT /r/1", newer, 200, ""},
		{"a store that lost its memory", "PUT /r/1", collided, 409, "collision"},
		{"another key", "PUT /r/1", elsewhere, 409, "wrong_key"},
		{"another key than the rule's", "PUT /mine/1", elsewhere, 409, "wrong_key"},
		{"the rule's key", "PUT /mine/1", older, 200, ""},
		{"no stamp", "PUT /r/1", fence.Stamp{}, 428, "invalid"},
		{"no rule", "PUT /elsewhere", newer, 403, "invalid"},
		{"a name too long for a lease", "PUT /r/" + strings.Repeat("x", fence.MaxKey-2), newer, 400, "invalid"},
		{"a read", "GET /r/1", fence.Stamp{}, 200, ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		r := send(t, method, front.URL+path, c.stamp, "")
		r.want(t, c.what, c.status, c.code)
		if c.code != "" && c.code != "invalid" && r.problem != nil && r.problem.Resource == "" {
			t.Errorf("%s: the problem does not name the resource: %s", c.what, r)
		}
	}
	if want := "PUT/r/1:41.0:true POST/r/1:41.0:true PUT/r/1:42.0:true PUT/r/2:41.0:true PUT/r/1:42.5:true PUT/r/1:42.6:true PUT/r/1:42.0:true PUT/mine/1:41.0:true GET/r/1:0.0:false"; seen.String() != want {
		t.Errorf("the handler saw\n%s, want\n%s", seen.String(), want)
	}
}

// TestOneWriteAtATime: each resource has its own turn. It lasts as long as the
// handler, also when the client has left.
func TestOneWriteAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "one", nil)
	var inside, most atomic.Int32
	entered, goOn := make(chan string, 10), make(chan struct{})
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		entered <- r.URL.Path
		if r.URL.Path == "/r/1" {
			<-goOn // does not end with r.Context()
		}
	})))
	defer front.Close()
	ctx, leave := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		if _, err := sendErr(ctx, "PUT", front.URL+"/r/1", older, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("the client that left: %v", err)
		}
	})
	<-entered
	leave()
	wait.Go(func() { send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the next", 200, "") })
	send(t, "PUT", front.URL+"/r/2", older, "").want(t, "another resource", 200, "")
	<-entered
	if most.Load() != 2 {
		t.Errorf("%d handlers at once, want one for each of two resources", most.Load())
	}
	select {
	case path := <-entered:
		t.Errorf("%s was let in while another was inside", path)
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	wait.Wait()
}

// TestATurnThatDoesNotComeIsAnAnswer: the answer says that nothing was sent,
// and when to try again.
func TestATurnThatDoesNotComeIsAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "one", func(o *Options) { o.Wait = soon })
	entered, goOn := make(chan struct{}), make(chan struct{})
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-goOn
	})))
	defer front.Close()
	var wait sync.WaitGroup
	wait.Go(func() { send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the first", 200, "") })
	<-entered
	r := send(t, "PUT", front.URL+"/r/1", newer, "")
	r.want(t, "the second", 503, "held")
	if r.problem == nil || r.problem.RetryAfter != time.Second || r.problem.Sent {
		t.Errorf("%s, want it to say when to try again, and that nothing was sent", r)
	}
	close(goOn)
	wait.Wait()
}

// TestWithoutTheMarkNothingIsWritten: if the guard cannot be reached, writes
// stop and reads pass. When it is back, writes pass, too.
func TestWithoutTheMarkNothingIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var seen journal
	g := w.gate(t, "one", nil)
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Method) })))
	defer front.Close()
	send(t, "PUT", front.URL+"/r/1", numbered(newer, 1), "").want(t, "before", 200, "")
	w.marks.fail(errors.New("connection refused"))
	for _, stamp := range []fence.Stamp{numbered(newer, 2), newer, older} {
		r := send(t, "POST", front.URL+"/r/1", stamp, "")
		r.want(t, "a write", 503, "unknown")
		if !strings.Contains(r.body, "mark of the resource cannot be read or raised") || r.problem.Sent {
			t.Errorf("%s, want it to say what is wrong, and that nothing was sent", r)
		}
	}
	send(t, "POST", front.URL+"/r/9", newer, "").want(t, "a write to a resource not seen before", 503, "unknown")
	send(t, "GET", front.URL+"/r/1", fence.Stamp{}, "").want(t, "a read", 200, "")
	w.marks.fail(nil)
	send(t, "PUT", front.URL+"/r/1", numbered(newer, 2), "").want(t, "the number that was not sent", 200, "")
	send(t, "PUT", front.URL+"/r/1", older, "").want(t, "the older owner", 409, "stale")
	if want := "PUT GET PUT"; seen.String() != want {
		t.Errorf("the handler saw %s, want %s", seen.String(), want)
	}
}

// TestARaiseByAnotherCounts: a new owner raises the mark at the guard before
// its first write. The gate sees that, although it remembers the mark.
func TestARaiseByAnotherCounts(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "one", nil)
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(echo)))
	defer front.Close()
	send(t, "PUT", front.URL+"/r/1", older, "").want(t, "the older", 200, "")
	mark, err := w.marks.open(t.Context(), "r/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mark.Raise(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	send(t, "PUT", front.URL+"/r/1", older, "").want(t, "the older, unnumbered as before", 409, "stale")
	if _, err := mark.Rekey(t.Context(), "jobs/b", "op", "moved"); err != nil {
		t.Fatal(err)
	}
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "of the old key", 409, "wrong_key")
	moved := fence.Stamp{Key: "jobs/b", Token: 50, Grant: newer.Grant}
	send(t, "PUT", front.URL+"/r/1", moved, "").want(t, "of the new key", 200, "")
}

// TestUnstampedWritesCanBeLetIn: with AllowUnstamped they are let in, in turn
// with the others.
func TestUnstampedWritesCanBeLetIn(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "one", func(o *Options) { o.AllowUnstamped = true })
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(echo)))
	defer front.Close()
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "stamped", 200, "")
	send(t, "PUT", front.URL+"/r/1", fence.Stamp{}, "").want(t, "unstamped", 200, "")
	send(t, "PUT", front.URL+"/r/1", older, "").want(t, "stale", 409, "stale")
}

// TestAPanicEndsTheTurn: the handler is over, and the next write comes in.
func TestAPanicEndsTheTurn(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.gate(t, "one", nil)
	front := httptest.NewServer(g.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
	})))
	defer front.Close()
	if r, err := sendErr(t.Context(), "POST", front.URL+"/r/1", newer, "x"); err == nil {
		t.Errorf("a panic was answered: %s", r)
	}
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the next", 200, "")
}

// TestRequireHandsTheStampOn: the handler gets the stamp and admits it by
// itself.
func TestRequireHandsTheStampOn(t *testing.T) {
	t.Parallel()
	mark := newer.Mark()
	front := httptest.NewServer(Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, ok := StampFrom(r.Context()); ok {
			if _, err := mark.Admit(s); err != nil {
				Refuse(w, err)
			}
		}
	})))
	defer front.Close()
	send(t, "PUT", front.URL, newer, "").want(t, "the newer", 200, "")
	send(t, "PUT", front.URL, older, "").want(t, "the older", 409, "stale")
	send(t, "PUT", front.URL, fence.Stamp{}, "").want(t, "a write without", 428, "invalid")
	send(t, "GET", front.URL, fence.Stamp{}, "").want(t, "a read without", 200, "")
	send(t, "GET", front.URL, older, "").want(t, "a read with an old one", 409, "stale")
}

// TestBadOptionsAreRefused: they are refused before anything is served.
func TestBadOptionsAreRefused(t *testing.T) {
	w := newWorld()
	for name, spoil := range map[string]func(*Options){
		"no marks":    func(o *Options) { o.Marks = nil },
		"no rules":    func(o *Options) { o.Rules = nil },
		"a bad rule":  func(o *Options) { o.Rules = []Rule{{Pattern: "x"}} },
		"a bad ttl":   func(o *Options) { o.TTL = time.Hour },
		"a short ttl": func(o *Options) { o.TTL = 1 },
		"a wait < 0":  func(o *Options) { o.Wait = -1 },
		"writes < 0":  func(o *Options) { o.MaxWrites = -1 },
		"a prefix":    func(o *Options) { o.LeasePrefix = "/" },
	} {
		o := w.options(t, "one")
		spoil(&o)
		if _, err := NewGate(o); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for _, template := range []string{"", "/var/marks", "/m/{resource}/{resource}"} {
		if _, err := MarksAt(template); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("marks at %q: %v, want ErrInvalid", template, err)
		}
	}
}
