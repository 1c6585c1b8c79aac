package steward_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// TestADestinationThatHangsHoldsUpNoOther: its deliveries use up its own slots.
func TestADestinationThatHangsHoldsUpNoOther(t *testing.T) {
	o := newOffice(t)
	hangs := steward.Func(func(ctx context.Context, _ work.Effect) error {
		<-ctx.Done()
		return ctx.Err()
	})
	for range 50 {
		o.done("q", work.Emission{Name: "hangs"})
	}
	ids := []work.ID{o.done("q", work.Emission{Name: "works"})}
	o.dispatch(o.l, map[string]steward.Deliverer{"hangs": hangs, "works": &receiver{}}, &steward.DispatchOptions{
		Slots: 2, Timeout: time.Second, Together: 1,
	})
	for range 5 {
		ids = append(ids, o.done("q", work.Emission{Name: "works"}))
	}
	for _, id := range ids {
		o.eventually(id, work.Sent)
	}
}

// TestDispatchersWorkTogether: each of two has one delivery in flight at the
// same time. Every effect is delivered once.
func TestDispatchersWorkTogether(t *testing.T) {
	o := newOffice(t)
	var both sync.WaitGroup
	both.Add(2)
	var mu sync.Mutex
	seen := map[string]int{}
	to := steward.Func(func(ctx context.Context, e work.Effect) error {
		mu.Lock()
		seen[e.EffectID.String()]++
		n := len(seen)
		mu.Unlock()
		if n <= 2 {
			both.Done()
			both.Wait()
		}
		return nil
	})
	var ids []work.ID
	for range 20 {
		ids = append(ids, o.done("q", work.Emission{Name: "a"}))
	}
	for range 2 {
		o.dispatch(o.l, map[string]steward.Deliverer{"a": to}, &steward.DispatchOptions{Slots: 1})
	}
	for _, id := range ids {
		o.eventually(id, work.Sent)
	}
	if len(seen) != 20 || slices.ContainsFunc(ids, func(id work.ID) bool { return seen[string(id)+":0:a"] != 1 }) {
		t.Errorf("delivered %v", seen)
	}
}

// TestEffectsArriveInOrder: two dispatchers deliver to a destination that wants
// order, and every second delivery fails at first. Another destination of the
// same dispatchers is not in order, and is not held up.
func TestEffectsArriveInOrder(t *testing.T) {
	o := newOffice(t)
	var mu sync.Mutex
	tried := map[string]int{}
	var arrived []string
	inFlight := 0
	journal := steward.Func(func(_ context.Context, e work.Effect) error {
		mu.Lock()
		inFlight++
		if inFlight > 1 {
			t.Errorf("%d deliveries at a time", inFlight)
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		inFlight--
		if tried[string(e.Body)]++; tried[string(e.Body)] == 1 && len(arrived) == 1 {
			return steward.Undelivered(errors.New("not now"))
		}
		arrived = append(arrived, string(e.Body))
		return nil
	})
	var ids []work.ID
	var want []string
	for i := range 8 {
		want = append(want, fmt.Sprint(i))
		ids = append(ids, o.done("q", work.Emission{Name: "journal", Body: fmt.Append(nil, i)}, work.Emission{Name: "any"}))
	}
	for range 2 {
		o.dispatch(o.l, map[string]steward.Deliverer{"journal": journal, "any": &receiver{}},
			&steward.DispatchOptions{Ordered: []string{"journal"}})
	}
	for _, id := range ids {
		o.eventually(id, work.Sent)
	}
	if !slices.Equal(arrived, want) || tried["1"] != 2 {
		t.Errorf("arrived as %v; %v", arrived, tried)
	}
}

// TestAReceiverThatFailsIsPausedAndComesBack: after a few deliveries it gets
// nothing for a while. What waits for it then is not lost.
func TestAReceiverThatFailsIsPausedAndComesBack(t *testing.T) {
	o := newOffice(t)
	var mu sync.Mutex
	down, tried := true, 0
	to := steward.Func(func(context.Context, work.Effect) error {
		mu.Lock()
		defer mu.Unlock()
		tried++
		if down {
			return steward.Undelivered(errors.New("connection refused"))
		}
		return nil
	})
	paused := make(chan steward.Pause, 100)
	var ids []work.ID
	for range 30 {
		ids = append(ids, o.done("q", work.Emission{Name: "a"}))
	}
	o.dispatch(o.l, map[string]steward.Deliverer{"a": to}, &steward.DispatchOptions{
		Slots: 2, Deliveries: 1000, Paused: func(p steward.Pause) { paused <- p },
	})
	select {
	case p := <-paused:
		if p.To != "a" || p.For <= 0 || p.Err == nil {
			t.Errorf("paused as %+v", p)
		}
	case <-time.After(patience):
		t.Fatal("it is not paused")
	}
	mu.Lock()
	if tried > 10 {
		t.Errorf("%d deliveries to a receiver that is down", tried)
	}
	down = false
	mu.Unlock()
	for _, id := range ids {
		o.eventually(id, work.Sent)
	}
}
