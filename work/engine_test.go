package work

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
)

var errNoReply = store.Unknown(errors.New("no reply"))

func testEngine(t *testing.T, o Options) *engine {
	t.Helper()
	o.Owner, o.Instance = "ann", "test"
	f, err := o.filled()
	if err != nil {
		t.Fatal(err)
	}
	return newEngine([]string{"q"}, f)
}

// found returns the only action of type A, and fails if there is not exactly
// one.
func found[A any](t *testing.T, actions []any) A {
	t.Helper()
	var one A
	n := 0
	for _, a := range actions {
		if a, ok := a.(A); ok {
			one = a
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d actions of type %T among %v", n, one, actions)
	}
	return one
}

// granted returns an item as the claim would get it.
func granted(t *testing.T, c Claim) Item {
	t.Helper()
	it, err := Grant(Item{ID: NewID(), Queue: "q", State: Waiting, Ready: start, Limit: 3}, c, start)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// TestAClaimSentAgainIsHeldFromItsFirstRequestOn: the ledger may have granted
// the items to the first request. So the local deadline counts from that one.
func TestAClaimSentAgainIsHeldFromItsFirstRequestOn(t *testing.T) {
	en := testEngine(t, Options{TTL: 30 * time.Second})
	first := found[claimAction](t, en.step(0))
	en.step(clock.Instant(5*time.Second), claimedEvent{asked: 8, err: errNoReply})
	again := found[claimAction](t, en.step(clock.Instant(6*time.Second)))
	if again.claim.Secret != first.claim.Secret || !again.claim.Again {
		t.Fatalf("sent again as %+v", again.claim)
	}
	begun := found[startAction](t, en.step(clock.Instant(7*time.Second), claimedEvent{items: []Item{granted(t, first.claim)}, asked: 8, sent: clock.Instant(6 * time.Second)}))
	if want := clock.Instant(27 * time.Second); begun.attempt.deadline != want {
		t.Errorf("its local deadline is %s, want %s", time.Duration(begun.attempt.deadline), time.Duration(want))
	}
	next := found[claimAction](t, en.step(clock.Instant(8*time.Second)))
	if next.claim.Again || next.claim.Secret == first.claim.Secret {
		t.Errorf("the next claim is %+v", next.claim)
	}
	fresh := found[startAction](t, en.step(clock.Instant(9*time.Second), claimedEvent{items: []Item{granted(t, next.claim)}, asked: 7, sent: clock.Instant(8 * time.Second)}))
	if want := clock.Instant(35 * time.Second); fresh.attempt.deadline != want {
		t.Errorf("the next one's local deadline is %s, want %s", time.Duration(fresh.attempt.deadline), time.Duration(want))
	}
}

// TestAnInvalidClaimIsNotSentAgain: the worker ends instead. That holds for the
// first request, and for a repetition after a lost reply.
func TestAnInvalidClaimIsNotSentAgain(t *testing.T) {
	for _, again := range []bool{false, true} {
		en := testEngine(t, Options{})
		found[claimAction](t, en.step(0))
		now := clock.Instant(time.Minute)
		if again {
			en.step(0, claimedEvent{asked: 8, err: errNoReply})
			found[claimAction](t, en.step(now))
		}
		en.step(now, claimedEvent{asked: 8, err: fence.ErrInvalid})
		if !errors.Is(en.fatal, fence.ErrInvalid) {
			t.Errorf("sent again %t: it ends with %v, want ErrInvalid", again, en.fatal)
		}
		if !en.over() {
			t.Errorf("sent again %t: the worker goes on", again)
		}
	}
}

// TestAClaimThatMetAFaultHasTakenNothing: the worker may end. That does not
// hold for a repetition: the first request may have taken items.
func TestAClaimThatMetAFaultHasTakenNothing(t *testing.T) {
	for _, again := range []bool{false, true} {
		en := testEngine(t, Options{})
		found[claimAction](t, en.step(0))
		now := clock.Instant(time.Minute)
		if again {
			en.step(0, claimedEvent{asked: 8, err: errNoReply})
			found[claimAction](t, en.step(now))
		}
		en.step(now, claimedEvent{asked: 8, err: store.Fault(errors.New("connection refused"))}, drainEvent{})
		if en.over() == again {
			t.Errorf("sent again %t: the worker may end %t", again, en.over())
		}
	}
}

// TestItemsThatArriveAfterTheEndHasBegunAreGivenBack: items that arrive after
// the shutdown has begun are released, not started.
func TestItemsThatArriveAfterTheEndHasBegunAreGivenBack(t *testing.T) {
	en := testEngine(t, Options{})
	c := found[claimAction](t, en.step(0))
	if en.step(1, drainEvent{}); en.over() {
		t.Fatal("it is over while a claim is on its way")
	}
	actions := en.step(2, claimedEvent{items: []Item{granted(t, c.claim)}, asked: 8})
	for _, a := range actions {
		if _, begun := a.(startAction); begun {
			t.Fatal("it was begun")
		}
	}
	sent := found[sendAction](t, actions)
	if len(sent.batch) != 1 || sent.batch[0].req.Verb != Release {
		t.Fatalf("sent %+v", sent)
	}
	en.step(3, answeredEvent{batch: sent.batch, answers: []Answer{{}}})
	if !en.over() {
		t.Error("it is not over")
	}
}

// TestAllHeartbeatsGoInOneCall: heartbeats that soon will be due go in the same
// call as those that are.
func TestAllHeartbeatsGoInOneCall(t *testing.T) {
	en := testEngine(t, Options{Slots: 100, TTL: 30 * time.Second})
	c := found[claimAction](t, en.step(0))
	var items []Item
	for range 50 {
		items = append(items, granted(t, c.claim))
	}
	en.step(1, claimedEvent{items: items, asked: 100})
	later := clock.Instant(time.Second)
	c = found[claimAction](t, en.step(later))
	en.step(later, claimedEvent{items: []Item{granted(t, c.claim)}, asked: 50, sent: later})
	beats := 0
	for _, a := range en.step(clock.Instant(10 * time.Second)) {
		if s, ok := a.(sendAction); ok && s.beats {
			beats++
			if len(s.batch) != 51 {
				t.Errorf("%d heartbeats in one call", len(s.batch))
			}
		}
	}
	if beats != 1 {
		t.Errorf("%d calls", beats)
	}
}

// TestALedgerThatDoesNotAnswerIsNotGivenMore: claims stop while many results
// wait to be written.
func TestALedgerThatDoesNotAnswerIsNotGivenMore(t *testing.T) {
	en := testEngine(t, Options{Slots: 4})
	now := clock.Instant(0)
	begun := 0
	for range 20 {
		now = now.Add(10 * time.Millisecond)
		var events []any
		for _, a := range en.step(now) {
			switch a := a.(type) {
			case claimAction:
				var items []Item
				for range a.claim.Limit {
					items = append(items, granted(t, a.claim))
				}
				events = append(events, claimedEvent{items: items, asked: a.claim.Limit, sent: now})
			}
		}
		for _, a := range en.step(now, events...) {
			if s, ok := a.(startAction); ok {
				begun++
				en.step(now, returnedEvent{key: s.attempt.key(), end: Request{Verb: Complete}})
			}
		}
	}
	if begun > 8 {
		t.Errorf("%d items were begun, and none is written", begun)
	}
	if len(en.byKey) == 0 {
		t.Errorf("nothing is kept")
	}
}

// TestACallIsOfBoundedWeight: many large results do not become one huge call,
// and each is sent.
func TestACallIsOfBoundedWeight(t *testing.T) {
	en := testEngine(t, Options{Slots: 50})
	c := found[claimAction](t, en.step(0))
	var items []Item
	for range 50 {
		items = append(items, granted(t, c.claim))
	}
	var events []any
	body := make([]byte, MaxPayload)
	for _, a := range en.step(1, claimedEvent{items: items, asked: 50}) {
		if s, ok := a.(startAction); ok {
			events = append(events, returnedEvent{key: s.attempt.key(), end: Request{Verb: Complete, Result: body}})
		}
	}
	calls, sent := 0, 0
	for now := clock.Instant(2); sent < 50; now++ {
		s := sendAction{}
		for _, a := range en.step(now, events...) {
			if send, ok := a.(sendAction); ok {
				s = send
			}
		}
		if len(s.batch) == 0 || len(s.batch) > mostBytes/MaxPayload {
			t.Fatalf("%d results of 1 MiB in one call", len(s.batch))
		}
		calls, sent = calls+1, sent+len(s.batch)
		events = []any{answeredEvent{batch: s.batch, answers: make([]Answer, len(s.batch))}}
	}
	if calls != 7 || len(en.byKey) == 50 {
		t.Errorf("%d calls", calls)
	}
}
