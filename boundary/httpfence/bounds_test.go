package httpfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/internal/admission/overhttp"
	"github.com/croft-dev/croft/tenure"
)

// counted is a guard that counts as open until it is closed.
type counted struct {
	guard.Guard
	open *atomic.Int64
}

func (c counted) Close() error {
	c.open.Add(-1)
	return c.Guard.Close()
}

// TestManyResourcesKeepFewGuardsOpen: each open guard may have connections of
// its own. A gate that has closed a guard still knows the mark there.
func TestManyResourcesKeepFewGuardsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var open, most atomic.Int64
	g := w.gate(t, "one", func(o *Options) {
		o.Marks = func(ctx context.Context, resource string) (guard.Guard, error) {
			g, err := w.marks.open(ctx, resource)
			for n, m := open.Add(1), most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			runtime.Gosched() // let others come in between
			return counted{g, &open}, err
		}
	})
	url := strings.TrimSuffix(serve(t, g), "1")
	for _, stamp := range []fence.Stamp{older, newer} {
		for i := range 3 * admission.MostOpenGuards {
			send(t, "PUT", fmt.Sprint(url, i), stamp, "").want(t, "a write", 200, "")
			if n := open.Load(); n > admission.MostOpenGuards {
				t.Fatalf("%d guards are open between writes, want at most %d", n, admission.MostOpenGuards)
			}
		}
	}
	for i := range 3 * admission.MostOpenGuards {
		send(t, "PUT", fmt.Sprint(url, i), older, "").want(t, "a stale write", 409, "stale")
	}
	var all sync.WaitGroup
	for i := range 6 * admission.MostOpenGuards {
		all.Go(func() {
			if r, err := sendErr(t.Context(), "PUT", fmt.Sprint(url, "x", i), newer, ""); err != nil || r.status != http.StatusOK {
				t.Errorf("one of many at once: %s, %v", r, err)
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > 2*admission.MostOpenGuards {
		t.Errorf("%d guards were open at once, want at most %d", n, 2*admission.MostOpenGuards)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d guards are still open", n)
	}
}

// TestAnOpenedResourceIsForgotten: the resource would have been closed for
// ever, and nobody writes to it any more.
func TestAnOpenedResourceIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld()
	crash(t, w, "zero")
	g := w.gate(t, "one", func(o *Options) {
		o.TTL, o.Settle, o.Wait, o.Idle = time.Second, croft.Forever, soon, 20*time.Millisecond
	})
	send(t, "PUT", serve(t, g), newer, "").want(t, "closed", 503, "unknown")
	if err := Reopen(t.Context(), newClient(t, w.store, "op"), "", "r/1", croft.ByHand{Note: "test"}); err != nil {
		t.Fatal(err)
	}
	testEventually(t, func() bool { return g.core.Resources() == 0 })
	two := w.gate(t, "two", impatient)
	send(t, "PUT", serve(t, two), newer, "").want(t, "another gate", 200, "")
}

// TestTheRecordSaysThatAResourceIsClosedWhateverTheReason: without that record
// an operator could not open it.
func TestTheRecordSaysThatAResourceIsClosedWhateverTheReason(t *testing.T) {
	t.Parallel()
	w := newWorld()
	_, front := w.proxy(t, "one", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		panic(http.ErrAbortHandler)
	}), nil)
	method := strings.Repeat("M", tenure.MaxText)
	send(t, method, front.URL+"/r/1", newer, "").want(t, "a write that is cut", 502, "unknown")
	rec, err := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1")
	if err != nil || !strings.HasPrefix(rec.Progress, admission.ClosedMark) {
		t.Errorf("the record says %q, %v", rec.Progress, err)
	}
}

// TestTheWaitForATurnIsNotTheClients: the wait does not count against the time
// in which a client must send a streamed body.
func TestTheWaitForATurnIsNotTheClients(t *testing.T) {
	t.Parallel()
	w := newWorld()
	const within = soon
	entered, goOn := make(chan struct{}), make(chan struct{})
	_, front := w.proxy(t, "one", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			close(entered)
			<-goOn
		}
		echo(w, r)
	}), func(o *ProxyOptions) { o.StreamBodies, o.ReceiveWithin = true, within })
	first, second := make(chan reply, 1), make(chan reply, 1)
	go func() { r, _ := sendErr(t.Context(), "POST", front.URL+"/r/1", newer, ""); first <- r }()
	<-entered
	go func() {
		r, _ := sendErr(t.Context(), "PUT", front.URL+"/r/1", newer, strings.Repeat("x", 1<<20)) // more than comes along with the header
		second <- r
	}()
	time.Sleep(within + within/2)
	close(goOn)
	(<-first).want(t, "the first", 200, "")
	if r := <-second; r.status != http.StatusOK {
		t.Errorf("the one that waited for its turn: %.200s", r)
	}
}

// TestTheRestOfAWriteDoesNotLeaveAfterTheLease: the rest of a write waits
// until the service takes more, as it does when the proxy is stopped.
func TestTheRestOfAWriteDoesNotLeaveAfterTheLease(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Log("there a piece goes on once it is under way: docs/boundary-http.md")
		return
	}
	lease, err := newClient(t, newWorld().store, "one").Acquire(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	conn := &overhttp.Conn{Conn: here, Exchange: &overhttp.Exchange{Context: t.Context(), Passage: &admission.Passage{Lease: lease}}}
	const much = 64 << 20 // more than the system takes
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, much))
		failed <- err
		conn.Close()
	}()
	if _, err := io.ReadFull(there, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, _ := io.Copy(io.Discard, there)
	if err := <-failed; !errors.Is(err, croft.ErrLost) || n+1 == much {
		t.Errorf("%d bytes of %d left, %v; want ErrLost", n+1, much, err)
	}
}
