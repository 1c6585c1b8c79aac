package httpfence

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

// atGate waits until n writes to r/1 have arrived at a gate, to wait or to go
// in.
func atGate(t *testing.T, g *Gate, n int) {
	t.Helper()
	testEventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		s := g.resources["r/1"]
		return s != nil && s.users == n
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
		return err == nil && strings.HasPrefix(rec.Progress, closedMark)
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
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.resources["r/1"]
	return func() bool {
		s.turn.mu.Lock()
		defer s.turn.mu.Unlock()
		return len(s.turn.waiting) == 1
	}
}

// TestNoKeyGetsBeforeAnotherByItsTokens: this holds for any forged token. Of
// one key the newest token goes first, and writes with the same token go in
// order of arrival.
func TestNoKeyGetsBeforeAnotherByItsTokens(t *testing.T) {
	var q queue
	if !q.try() {
		t.Fatal("nobody has the turn")
	}
	var order journal
	var all sync.WaitGroup
	for i, c := range []struct {
		key   string
		token fence.Token
	}{{"x", 1}, {"a", 7}, {"x", 2}, {"a", 8}, {"x", 3}, {"a", 7}, {"a", 8}} {
		stamp := fence.Stamp{Key: c.key, Token: c.token, Seq: uint64(i)}
		all.Go(func() {
			if err := q.take(t.Context(), stamp, nil); err != nil {
				t.Error(err)
			}
			order.add("%s%d.%d", stamp.Key, stamp.Token, stamp.Seq)
			q.pass()
		})
		testEventually(t, func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.waiting) == i+1
		})
	}
	q.pass()
	all.Wait()
	if want := "x3.4 a8.3 x2.2 a8.6 x1.0 a7.1 a7.5"; order.String() != want {
		t.Errorf("the turns were %s, want %s", order.String(), want)
	}
}
