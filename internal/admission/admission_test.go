package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// newGate makes a gate without leases, whose marks are in memory.
func newGate(t *testing.T, change func(*Options)) *Gate {
	t.Helper()
	o := Options{Marks: func(context.Context, string) (guard.Guard, error) {
		return &guardtest.Memory{}, nil
	}}
	if change != nil {
		change(&o)
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// TestNoKeyGetsBeforeAnotherByItsTokens: this holds for any forged token. Of
// one key the newest token goes first, and writes with the same token go in
// order of arrival.
func TestNoKeyGetsBeforeAnotherByItsTokens(t *testing.T) {
	var q queue
	if !q.try() {
		t.Fatal("nobody has the turn")
	}
	var order []string
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
			order = append(order, fmt.Sprintf("%s%d.%d", stamp.Key, stamp.Token, stamp.Seq)) // in turn
			q.pass()
		})
		eventually(t, func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.waiting) == i+1
		})
	}
	q.pass()
	all.Wait()
	if want := "x3.4 a8.3 x2.2 a8.6 x1.0 a7.1 a7.5"; strings.Join(order, " ") != want {
		t.Errorf("the turns were %s, want %s", order, want)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(testenv.Patience); !what(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// TestManyClientsMayHaveOneAddress: a balancer's, or a NAT's. With the
// defaults a whole fleet is not refused while the gate is less than half full.
func TestManyClientsMayHaveOneAddress(t *testing.T) {
	g := newGate(t, nil)
	c := &clients{each: map[string]*usage{}}
	for i := range 30_000 { // 500 new resources a second, for a minute
		if err := c.admit("balancer", true, &g.Options); err != nil {
			t.Fatalf("resource %d: %v", i, err)
		}
		c.count("balancer", usage{resources: 1})
	}
	for i := range 2000 {
		if err := c.admit("balancer", false, &g.Options); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		c.count("balancer", usage{writes: 1})
	}
}

// TestTheNextClientFindsRoom: whatever the clients before it have taken, there
// is room. The client that has most is refused with 429.
func TestTheNextClientFindsRoom(t *testing.T) {
	o := newGate(t, func(o *Options) { o.MaxWrites = 1000 }).Options
	c := &clients{each: map[string]*usage{}}
	for i := range 8 {
		name := fmt.Sprint("hog ", i)
		err := c.admit(name, false, &o)
		if err != nil {
			t.Fatalf("the first write of %s: %v", name, err)
		}
		for ; err == nil; err = c.admit(name, false, &o) {
			c.count(name, usage{writes: 1})
		}
		if r := RefusalOf(err); r.Status != http.StatusTooManyRequests {
			t.Errorf("%s, that has %d of %d: %v, want 429", name, c.of(name).writes, c.all.writes, err)
		}
		if i == 0 && c.all.writes != 500 {
			t.Errorf("one client got %d of 1000, want half", c.all.writes)
		}
	}
}

// TestManyUnusedResourcesAreKeptForLess: each costs the renewals of a lease.
func TestManyUnusedResourcesAreKeptForLess(t *testing.T) {
	g := newGate(t, func(o *Options) { o.Idle = time.Minute })
	for n, want := range map[int]time.Duration{0: time.Minute, 2*mostKept - 1: time.Minute, 10 * mostKept: 6 * time.Second} {
		g.resources = map[string]*resourceState{}
		for i := range n {
			g.resources[fmt.Sprint(i)] = nil
		}
		if got := g.idle(); got != want {
			t.Errorf("of %d resources, one is kept for %s; want %s", n, got, want)
		}
	}
	g.resources = nil // Close would look into them
}

// TestATermThatIsNotRememberedMayHaveBeenTakenByHand: then its gate may still
// believe in its lease.
func TestATermThatIsNotRememberedMayHaveBeenTakenByHand(t *testing.T) {
	lapsed := tenure.Term{Cause: tenure.Expired, Ended: tenure.EndExpired}
	first := tenure.Term{Cause: tenure.First, Ended: tenure.EndExpired}
	for name, c := range map[string]struct {
		history  []tenure.Term
		believed bool
	}{
		"nothing is remembered":    {nil, true},
		"only the newest":          {[]tenure.Term{{}}, true},
		"not from the beginning":   {[]tenure.Term{lapsed, lapsed, {}}, true},
		"all from the beginning":   {[]tenure.Term{first, lapsed, {}}, false},
		"one was taken by hand":    {[]tenure.Term{first, {Ended: tenure.EndTakenOver}, lapsed, {}}, true},
		"taken and settled before": {[]tenure.Term{{Ended: tenure.EndTakenOver}, {Ended: tenure.EndReleased}, lapsed, {}}, false},
	} {
		if left, believed := unsettled(tenure.Record{History: c.history}); !left || believed != c.believed {
			t.Errorf("%s: left %v, believed %v; want true, %v", name, left, believed, c.believed)
		}
	}
}

// TestEveryResourceHasATargetOfItsOwn, whatever its name.
func TestEveryResourceHasATargetOfItsOwn(t *testing.T) {
	for _, c := range [][3]string{
		{"/m/{resource}", "orders/4 2", "/m/orders%2F4%202"},
		{"file:///m/{resource}", "orders/42", "file:///m/orders%252F42"},
		{"redis://h/0#p:{resource}", "orders/4#2", "redis://h/0#p:orders/4%232"},
		{"postgres://h/d#p/{resource}", "a%b", "postgres://h/d#p/a%25b"},
	} {
		if got := markTarget(c[0], c[1]); got != c[2] {
			t.Errorf("%s with %s is %s, want %s", c[0], c[1], got, c[2])
		}
	}
	a, b := markTarget("/m/{resource}", strings.Repeat("x", 400)+"a"), markTarget("/m/{resource}", strings.Repeat("x", 400)+"b")
	if a == b || len(a) > 200 {
		t.Errorf("long names: %s and %s", a, b)
	}
}

// TestAMarkerIsLegibleWhateverTheReason: the reason may contain text of others.
func TestAMarkerIsLegibleWhateverTheReason(t *testing.T) {
	if got, want := legible("a\x00b\xff\n€"+strings.Repeat("€", tenure.MaxText)), "a b? €"; !strings.HasPrefix(got, want) || len(got) > tenure.MaxText {
		t.Errorf("%d bytes, %.10q; want %q at the beginning and at most %d", len(got), got, want, tenure.MaxText)
	}
}

// unsure does not know who the current owner is.
type unsure struct{}

func (unsure) Check(context.Context, fence.Stamp) error {
	return store.Unknown(errors.New("no answer"))
}

// TestAClientThatLeavesIsNotUnsure: with AdmitUnsure, hanging up would be a way
// past the check.
func TestAClientThatLeavesIsNotUnsure(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(o *Options) { o.Current, o.AdmitUnsure = unsure{}, true })
	stamp := fence.Stamp{Key: "jobs/a", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	err := g.checkCurrent(ctx, Write{Stamp: stamp, Stamped: true}, func(error) { t.Error("the write was admitted") })
	if RefusalOf(err).Status != http.StatusServiceUnavailable {
		t.Errorf("the write got %v", err)
	}
}

// TestAForgottenResourceCanStillBeClosed: Close may have seen it just before.
// Forgetting it twice does not forget the next one of its name.
func TestAForgottenResourceCanStillBeClosed(t *testing.T) {
	g := newGate(t, nil)
	write := func() *resourceState {
		a, err := g.Arrive(t.Context(), Write{Resource: "r"})
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Answered()
		a.Depart()
		return a.s
	}
	old := write()
	old.releaseIdle(0)
	if g.Resources() != 0 || !old.turn.try() {
		t.Error("the turn of a forgotten resource was not passed on")
	}
	old.turn.pass()
	fresh := write()
	old.releaseIdle(0)
	if _, known := g.Inspect("r"); !known || fresh == old {
		t.Error("the next resource of that name was forgotten, too")
	}
}
