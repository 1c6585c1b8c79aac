package httpfence

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// TestTheBodyOfAStaleWriteIsNotReceived: this holds while the newer owner's
// write is inside, and when none is.
func TestTheBodyOfAStaleWriteIsNotReceived(t *testing.T) {
	t.Parallel()
	w := newWorld()
	entered, goOn := make(chan struct{}), make(chan struct{})
	_, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			close(entered)
			<-goOn
		}
	}), func(o *ProxyOptions) { o.ReceiveWithin = soon })
	stale := "PUT /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + Header + ": " + older.String() + "\r\nContent-Length: 1000000\r\n\r\n"
	var wait sync.WaitGroup
	wait.Go(func() { send(t, "POST", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "") })
	<-entered
	raw(t, front.URL, stale).want(t, "before the body, while the newer is inside", 409, "stale")
	close(goOn)
	wait.Wait()
	raw(t, front.URL, stale).want(t, "before the body, when nobody is inside", 409, "stale")
	// The gate does not rely on the mark that it remembers.
	g, err := w.marks.open(t.Context(), "r/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Rekey(t.Context(), "jobs/b", "op", "moved"); err != nil {
		t.Fatal(err)
	}
	moved := fence.Stamp{Key: "jobs/b", Token: 50, Grant: newer.Grant}
	send(t, "PUT", front.URL+"/r/1", moved, "").want(t, "a key that was allowed meanwhile", 200, "")
}

// slow is a guard whose mark can be read only when the test lets it.
type slow struct {
	guard.Guard
	looks chan struct{} // nil lets every read pass
}

func (s slow) Mark(ctx context.Context) (fence.Mark, error) {
	if s.looks != nil {
		s.looks <- struct{}{}
		<-s.looks
	}
	return s.Guard.Mark(ctx)
}

// TestOfManyStaleWritesNoBodyIsReceived: this holds also while the mark is
// being read for another one of them.
func TestOfManyStaleWritesNoBodyIsReceived(t *testing.T) {
	t.Parallel()
	const many = 5
	w := newWorld()
	looks := make(chan struct{})
	var opened atomic.Int64
	p, front := w.proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) {
		o.Idle = time.Hour
		o.Marks = func(ctx context.Context, resource string) (guard.Guard, error) {
			g, err := w.marks.open(ctx, resource)
			if opened.Add(1) == 1 {
				return g, err
			}
			return slow{g, looks}, err
		}
	})
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "")
	atGate(t, p.gate, 0)
	p.gate.core.CloseMarks("r/1") // the next look opens it again
	stale := "PUT /r/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + Header + ": " + older.String() + "\r\nContent-Length: 1000000\r\n\r\n"
	var all sync.WaitGroup
	for range many {
		all.Go(func() { raw(t, front.URL, stale).want(t, "before the body", 409, "stale") })
	}
	<-looks // one of them
	atGate(t, p.gate, many)
	for range many - 1 {
		looks <- struct{}{}
		<-looks
	}
	looks <- struct{}{}
	all.Wait()
}

// TestAResourceThatWasMovedIsOpenToItsNewKey: this holds even if a write of the
// old key was inside when it was moved, and when the new one came.
func TestAResourceThatWasMovedIsOpenToItsNewKey(t *testing.T) {
	t.Parallel()
	w := newWorld()
	entered, goOn := make(chan struct{}), make(chan struct{})
	p, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			close(entered)
			<-goOn
		}
	}), nil)
	var all sync.WaitGroup
	all.Go(func() { send(t, "POST", front.URL+"/r/1", newer, "").want(t, "the old key", 200, "") })
	<-entered
	g, err := w.marks.open(t.Context(), "r/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Rekey(t.Context(), "jobs/b", "op", "moved"); err != nil {
		t.Fatal(err)
	}
	moved := fence.Stamp{Key: "jobs/b", Token: 50, Grant: newer.Grant}
	all.Go(func() { send(t, "PUT", front.URL+"/r/1", moved, "").want(t, "the new key", 200, "") })
	testEventually(t, waitsAt(p.gate))
	close(goOn)
	all.Wait()
}

// TestARefusalDoesNotWaitForTheBody: the proxy answers even if the rest of a
// short body never comes.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), func(o *ProxyOptions) { o.ReceiveWithin = time.Hour })
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "")
	for what, c := range map[string]struct {
		request string
		status  int
	}{
		"a stale write":         {"PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n" + Header + ": " + older.String(), 409},
		"a write without stamp": {"PUT /r/1 HTTP/1.1\r\nHost: localhost", 428},
		"a read":                {"GET /r/1 HTTP/1.1\r\nHost: localhost", 400},
		"another host":          {"GET /r/1 HTTP/1.1\r\nHost: evil.example", 421},
	} {
		for _, length := range []string{"Content-Length: 10", "Content-Length: 1000000", "Transfer-Encoding: chunked"} {
			if r := raw(t, front.URL, c.request+"\r\n"+length+"\r\n\r\n"); r.status != c.status || r.problem == nil {
				t.Errorf("%s with %s: %s, want %d", what, length, r, c.status)
			}
		}
	}
}

// TestAClientThatSendsAllBeforeItReadsLearnsWhy: the proxy does not cut such a
// client off. It would take the outcome for unknown.
func TestAClientThatSendsAllBeforeItReadsLearnsWhy(t *testing.T) {
	t.Parallel()
	_, front := newWorld().proxy(t, "one", http.HandlerFunc(echo), nil)
	send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "")
	const long = 32 << 20 // more than the buffers of any connection hold
	head := fmt.Sprintf("PUT /r/1 HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", Header, older, long)
	raw(t, front.URL, head+strings.Repeat("x", long)).want(t, "a stale write", 409, "stale")
}
