package httpfence

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/admission"
)

// atGate waits until n writes to r/1 have arrived at a gate, to wait or to go
// in.
func atGate(t *testing.T, g *Gate, n int) {
	t.Helper()
	testEventually(t, func() bool {
		s, known := g.core.Inspect("r/1")
		return known && s.Writes == n
	})
}

// TestAReplacedOwnerCannotKeepTheNextOneWaiting: however many of its writes
// wait, the newer owner's write is the next. The service sees none of the
// others.
func TestAReplacedOwnerCannotKeepTheNextOneWaiting(t *testing.T) {
	t.Parallel()
	const many = 20
	var seen journal
	entered, goOn := make(chan struct{}), make(chan struct{})
	p, front := newWorld().proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.add("%s", r.Method)
		if r.Method == "POST" {
			close(entered)
			<-goOn
		}
	}), nil)
	var all sync.WaitGroup
	all.Go(func() { send(t, "POST", front.URL+"/r/1", older, "").want(t, "the first", 200, "") })
	<-entered
	for range many {
		all.Go(func() { send(t, "PATCH", front.URL+"/r/1", older, "").want(t, "one of many", 409, "stale") })
	}
	atGate(t, p.gate, 1+many)
	all.Go(func() { send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "") })
	atGate(t, p.gate, 1+many+1)
	close(goOn)
	all.Wait()
	if want := "POST PUT"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// TestAReplacedOwnerThatWaitsForAClosedResourceGivesWay: it gives way to a
// newer owner that came later.
func TestAReplacedOwnerThatWaitsForAClosedResourceGivesWay(t *testing.T) {
	t.Parallel()
	w := newWorld()
	crash(t, w, "zero")
	var seen journal
	p, front := w.proxy(t, "one", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.add("%s", r.Method) }), func(o *ProxyOptions) {
		o.Settle = time.Minute
	})
	clk := at(p.gate)
	var all sync.WaitGroup
	all.Go(func() { send(t, "PATCH", front.URL+"/r/1", older, "").want(t, "the older", 409, "stale") })
	testEventually(t, func() bool {
		rec, err := w.store.Get(t.Context(), DefaultLeasePrefix+"r/1")
		return err == nil && strings.HasPrefix(rec.Progress, admission.ClosedMark)
	})
	all.Go(func() { send(t, "PUT", front.URL+"/r/1", newer, "").want(t, "the newer", 200, "") })
	atGate(t, p.gate, 2)
	testEventually(t, waitsAt(p.gate)) // it has arrived; now it is in the queue
	clk.Advance(time.Minute)
	all.Wait()
	if want := "PUT"; seen.String() != want {
		t.Errorf("the service saw %s, want %s", seen.String(), want)
	}
}

// waitsAt reports whether a write waits for its turn at r/1.
func waitsAt(g *Gate) func() bool {
	return func() bool {
		s, _ := g.core.Inspect("r/1")
		return s.Waiting == 1
	}
}
