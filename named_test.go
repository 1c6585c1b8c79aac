package croft

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
)

// TestAGuardThatHangsDoesNotHideWhatAnActDid: the operator gets its lease, and
// learns where the fence is not up.
func TestAGuardThatHangsDoesNotHideWhatAnActDid(t *testing.T) {
	inBubble(t, func(r *rig) {
		hangs, free := &fencedTarget{name: "crofttest://hangs"}, &fencedTarget{name: "crofttest://near"}
		end := make(chan struct{})
		defer close(end)
		targets.Store("hangs", func() { <-end })
		targets.Store("near", free)
		r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{hangs, free}})
		got, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if !errors.Is(err, ErrUnfenced) || got == nil || got.Deed.Secret == "" {
			r.Fatalf("%+v, %v; want the lease, and the fence reported as not up", got, err)
		}
		if got.Raised[0].Err == nil || got.Raised[1].Err != nil || r.mark(free).Token != got.Deed.Token {
			r.Errorf("%+v; want it raised where nothing hangs", got.Raised)
		}
	})
}

// trusted allows the guards of these tests.
var trusted = func() guard.Allowed {
	a, err := guard.Allow("crofttest://near", "crofttest://between", "crofttest://overtaken", "crofttest://higher", "crofttest://ahead", "crofttest://new", "crofttest://hangs")
	if err != nil {
		panic(err)
	}
	return a
}()

// TestTargetsInARecordAreNotOpenedUnlessAllowed: a holder chooses them, and
// opening one sends the operator's credentials there.
func TestTargetsInARecordAreNotOpenedUnlessAllowed(t *testing.T) {
	inBubble(t, func(r *rig) {
		target := &fencedTarget{name: "crofttest://opened"}
		targets.Store("opened", target)
		r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}})
		before := r.mark(target)
		got, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if !errors.Is(err, ErrUnfenced) || got == nil || len(got.Raised) != 1 || !errors.Is(got.Raised[0].Err, ErrNotAllowed) {
			r.Fatalf("%+v, %v", got, err)
		}
		if _, yes := opened.Load("opened"); yes || r.mark(target) != before {
			r.Error("the target was opened")
		}
	})
}

// TestAGuardThatRemembersAForgottenTokenIsRaisedAboveIt: the store was restored
// to an earlier state, but its last holder has a later token. That holder is
// shut out too.
func TestAGuardThatRemembersAForgottenTokenIsRaisedAboveIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		target := &fencedTarget{name: "crofttest://ahead"}
		targets.Store("ahead", target)
		l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}})
		old := l.Stamp()
		old.Token += fence.Token(time.Hour / time.Microsecond)
		if _, err := target.Raise(r.Context(), old); err != nil {
			r.Fatal(err)
		}
		got, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if err != nil {
			r.Fatal(err)
		}
		if got.Deed.Token <= old.Token || got.Record.Token != got.Deed.Token || got.Before.Token != l.Token() {
			r.Errorf("taken with token %d from %d, want it above %d", got.Deed.Token, got.Before.Token, old.Token)
		}
		if _, err := target.Memory.Raise(r.Context(), old); !errors.Is(err, ErrStale) {
			r.Errorf("the old holder at the guard: %v, want stale", err)
		}
	})
}

// TestAMarkThatNoClockExplainsIsReported: the operator's act does not follow a
// forged mark with the key's tokens.
func TestAMarkThatNoClockExplainsIsReported(t *testing.T) {
	inBubble(t, func(r *rig) {
		target := &fencedTarget{name: "crofttest://ahead"}
		targets.Store("ahead", target)
		l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}})
		forged := l.Stamp()
		forged.Token = tenure.MaxAbove - 1
		// As if the mark dated from before there was a limit.
		fence.SetMaxAhead(200 * fence.DefaultMaxAhead)
		_, err := target.Raise(r.Context(), forged)
		fence.SetMaxAhead(0)
		if err != nil {
			r.Fatal(err)
		}
		got, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if !errors.Is(err, ErrUnfenced) || !errors.Is(err, ErrStale) || got == nil || got.Deed.Token >= forged.Token {
			r.Errorf("%+v, %v; want it done, and the fence reported as not up", got, err)
		}
		// With so wide a limit, the mark is above every token that a request
		// can ask for.
		fence.SetMaxAhead(250 * fence.DefaultMaxAhead)
		defer fence.SetMaxAhead(0)
		forged.Token = tenure.MaxAbove + 1
		if _, err := target.Raise(r.Context(), forged); err != nil {
			r.Fatal(err)
		}
		got, err = r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if got == nil || err != nil && !errors.Is(err, ErrUnfenced) {
			r.Errorf("%+v, %v; want it done", got, err)
		}
	})
}

// TestEveryMarkThatAGuardAdmitsIsFollowed: one made-up stamp keeps neither an
// operator nor the next owner out.
func TestEveryMarkThatAGuardAdmitsIsFollowed(t *testing.T) {
	inBubble(t, func(r *rig) {
		target := &fencedTarget{name: "crofttest://ahead"}
		targets.Store("ahead", target)
		c := r.client(nil, nil)
		forged := r.acquire(c, "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}}).Stamp()
		// The test's clock shows 2000, which guards take for the first day of
		// 2026.
		forged.Token = fence.Token(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, 300).UnixMicro())
		if _, err := target.Raise(r.Context(), forged); err != nil {
			r.Fatal(err)
		}
		got, err := c.Revoke(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if err != nil || got.Deed.Token <= forged.Token {
			r.Fatalf("%+v, %v; want a token above %d", got, err, forged.Token)
		}
		forged.Token += 1000
		if _, err := target.Raise(r.Context(), forged); err != nil {
			r.Fatal(err)
		}
		if l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{target}}); l.Token() <= forged.Token {
			r.Errorf("token %d, want one above %d", l.Token(), forged.Token)
		}
	})
}

// TestNothingIsMadeWhereARecordSays: a target without a mark stays as it is.
func TestNothingIsMadeWhereARecordSays(t *testing.T) {
	inBubble(t, func(r *rig) {
		named, there := &fencedTarget{name: "crofttest://new"}, &fencedTarget{name: "crofttest://new"}
		targets.Store("new", there)
		r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{Guards: []guard.Guard{named}})
		got, err := r.client(nil, nil).Revoke(r.Context(), "jobs/one", ByHand{Note: "x", Raise: trusted})
		if !errors.Is(err, ErrUnfenced) || got == nil || !r.mark(there).IsZero() {
			r.Errorf("%+v, %v; the mark there is %+v", got, err, r.mark(there))
		}
	})
}
