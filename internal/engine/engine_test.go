package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func TestAFreeKeyIsGrantedWithOneRequest(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", 0)
	if b := r.wantFlight(tenure.Acquire); b.Caller != c {
		t.Error("the caller could make the call itself")
	}
	r.answer()
	l := r.leaseOf(c)
	if l.Token == 0 || l.Lost != nil {
		t.Errorf("the lease is %+v", l)
	}
	r.wantQuiet()
	out := r.release(l)
	r.wantFlight(tenure.Release)
	r.answer()
	r.wantErr(out, nil)
	if len(r.e.queues) != 0 || r.e.active != 0 || len(r.e.alarms) != 0 || len(r.e.leases) != 0 {
		t.Errorf("left behind: %d queues, %d active, %d alarms, %d leases",
			len(r.e.queues), r.e.active, len(r.e.alarms), len(r.e.leases))
	}
}

func TestTheLocalDeadlineCountsFromTheFirstCopyThatMayHaveBeenGranted(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", time.Minute)
	sent := r.now
	r.now = r.now.Add(400 * time.Millisecond)
	r.lose(true) // granted, but the answer is lost
	r.pass(100 * time.Millisecond)
	r.wantFlight(tenure.Acquire)
	r.answer()
	l := r.leaseOf(c)
	if most := sent.Add(l.TTL - l.policy.Margin()); l.Deadline() > most {
		t.Errorf("the local deadline is %s after the first copy, want at most %s",
			l.Deadline().Sub(sent), most.Sub(sent))
	}
}

func TestAGrantThatIsTooOldGivesNoAuthority(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", 2*time.Minute)
	b := r.next()
	answers := r.apply(b.Requests, r.now)
	r.now = r.now.Add(59 * time.Second)
	r.e.Answered(r.now, b, answers)
	r.take()
	r.wantOpen(c)
	r.live(5 * time.Second) // until the store calls that grant over
	l := r.leaseOf(c)
	if left := l.Deadline().Sub(r.now); left < 30*time.Second {
		t.Errorf("the lease has %s left, want a fresh one", left)
	}
}

func TestAnUnknownOutcomeIsAskedForAgainWithTheSameSecret(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", time.Minute)
	first := r.flying[0].Requests[0].Secret
	r.lose(false)
	r.pass(time.Second)
	if again := r.wantFlight(tenure.Acquire).Requests[0].Secret; again != first {
		t.Error("the second copy has another secret")
	}
	r.answer()
	r.leaseOf(c)
}

func TestACallerThatLeavesAnUnknownOutcomeIsToldAndTheGrantIsReleased(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", time.Minute)
	r.e.Abandon(r.now, c, context.Canceled)
	r.take()
	r.wantErr(c, context.Canceled)
	r.wantErr(c, store.ErrUnknown)
	if r.idle {
		t.Fatal("the engine has forgotten what is in flight")
	}
	r.answer() // granted
	r.wantFlight(tenure.Release)
	r.answer()
	if got := r.records["a"].State; got != tenure.Free {
		t.Errorf("the key is %s, want it free", got)
	}
	if !r.idle {
		t.Error("something is left to do")
	}
}

func TestACallThatWasNotSentLeavesNothingBehind(t *testing.T) {
	r := newRig(t)
	r.acquire("b", 0) // in flight
	c := r.acquire("a", time.Minute)
	r.e.Abandon(r.now, c, context.Canceled)
	r.take()
	r.wantErr(c, context.Canceled)
	r.settle()
	if _, asked := r.records["a"]; asked {
		t.Error("the abandoned request was sent")
	}
	if r.e.active != 0 {
		t.Errorf("%d are active", r.e.active)
	}
}

func TestASecretThatIsUsedUpIsReplacedTheSecondTimeWithAPause(t *testing.T) {
	r := newRig(t)
	c := r.acquire("a", Forever)
	used := &tenure.NotOwnedError{Why: tenure.WhyExpired}
	refuse := func() tenure.Secret {
		b := r.next()
		r.e.Answered(r.now, b, []store.Answer{{Err: used}})
		r.take()
		return b.Requests[0].Secret
	}
	first := refuse()
	second := r.wantFlight(tenure.Acquire).Requests[0].Secret
	if second == first {
		t.Fatal("a used secret was sent again")
	}
	refuse()
	r.wantQuiet()
	r.pass(time.Second)
	if third := r.wantFlight(tenure.Acquire).Requests[0].Secret; third == second || third == first {
		t.Error("a used secret was sent again")
	}
	r.wantOpen(c)
}

func TestABatchWithoutAnAnswerIsOvertaken(t *testing.T) {
	r := newRig(t)
	r.acquire("hangs", Forever)
	c := r.acquire("a", time.Minute)
	if len(r.flying) != 1 {
		t.Fatalf("%d batches are in flight, want the second request to wait", len(r.flying))
	}
	r.pass(hungAfter)
	if len(r.flying) < 2 {
		t.Fatal("the waiting request was not sent")
	}
	for _, b := range r.flying[1:] {
		if len(b.Requests) > 1 {
			t.Errorf("a copy of what hangs goes with others: %+v", b.Requests)
		}
	}
	r.pass(time.Minute)
	if n := len(r.flying); n > maxInFlight {
		t.Errorf("%d batches are in flight, want at most %d", n, maxInFlight)
	}
	hanging := r.flying[0]
	r.flying = r.flying[1:]
	r.settle()
	r.e.Answered(r.now, hanging, store.Failed(1, errLost))
	r.take()
	r.settle()
	if c.state != done {
		t.Error("the second call has no reply")
	}
}

func TestASkippedRenewalGoesAloneTheNextTime(t *testing.T) {
	r := newRig(t)
	var calls []*Call
	for _, key := range []string{"a", "b", "c"} {
		calls = append(calls, r.acquire(key, 0))
	}
	r.settle()
	r.pass(20 * time.Second)
	b := r.wantFlight(tenure.Renew, tenure.Renew, tenure.Renew)
	r.next()
	answers := r.apply(b.Requests, r.now)
	answers[1] = store.Answer{Err: errLost}
	r.e.Answered(r.now, b, answers)
	r.take()
	r.pass(5 * time.Second)
	if b := r.wantFlight(tenure.Renew); b.class != alone {
		t.Errorf("the skipped renewal has class %d", b.class)
	}
	r.settle()
	for _, c := range calls {
		if r.leaseOf(c).Lost != nil {
			t.Error("a lease was lost")
		}
	}
}

func TestRenewalsLeaveRoomForOtherRequests(t *testing.T) {
	r := newRig(t)
	for i := range maxBatch {
		r.acquire("lease/"+string(rune('0'+i%10))+time.Duration(i).String(), 0)
	}
	r.settle()
	r.now = r.wake.Add(2 * time.Second) // all renewals are due
	r.e.Tick(r.now)
	c := newAcquire("late", 0)
	r.e.Begin(r.now, c)
	r.take()
	b := r.flying[0]
	renewals := 0
	for _, req := range b.Requests {
		if req.Verb == tenure.Renew {
			renewals++
		}
	}
	if renewals > maxRenewals || !slices.ContainsFunc(b.Requests, func(q tenure.Request) bool { return q.Key == "late" }) {
		t.Errorf("the first batch has %d renewals of %d requests, and should have room for the late one", renewals, len(b.Requests))
	}
}

func TestRenewalsNearEachOtherGoTogether(t *testing.T) {
	r := newRig(t)
	r.granted("a")
	r.live(2 * time.Second)
	r.granted("b")
	r.pass(19 * time.Second)
	r.wantFlight(tenure.Renew, tenure.Renew)
	r.settle()
	r.pass(20 * time.Second)
	r.wantFlight(tenure.Renew, tenure.Renew)
}

func TestAReleasedKeyIsPassedOnInTheSameBatch(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	for i := range maxPassed {
		c := r.acquire("a", time.Minute)
		r.wantQuiet()
		r.release(l)
		r.wantFlight(tenure.Release, tenure.Acquire)
		r.answer()
		l = r.leaseOf(c)
		if t.Failed() {
			t.Fatalf("at hand-off %d", i)
		}
	}
	c := r.acquire("a", time.Minute)
	r.release(l)
	r.wantFlight(tenure.Release) // others can compete now
	r.settle()
	r.leaseOf(c)
}

func TestAKeyIsNotPassedOnWhileOthersWait(t *testing.T) {
	r := newRig(t)
	r.awaited = true
	l := r.granted("a")
	c := r.acquire("a", time.Minute)
	r.release(l)
	r.wantFlight(tenure.Release, tenure.Acquire) // the engine does not know yet that others wait
	r.answer()
	l = r.leaseOf(c)
	c = r.acquire("a", time.Minute)
	r.release(l)
	r.wantFlight(tenure.Release)
	r.answer()
	r.wantQuiet() // the others go first
	r.pass(Courtesy)
	r.wantFlight(tenure.Acquire)
	r.settle()
	r.leaseOf(c)
}

// TestAContendedKeyIsWatchedBeforeItIsAskedFor: the store can then put the
// client into its queue with the first request. If no hints come, the call asks
// without them. A call that does not wait needs no hints.
func TestAContendedKeyIsWatchedBeforeItIsAskedFor(t *testing.T) {
	for _, hints := range []bool{true, false} {
		r := newRig(t)
		r.awaited = true
		r.release(r.granted("a"))
		r.settle()
		r.pass(Contended / 2)
		r.ready.Watch = nil
		c := r.acquire("a", time.Minute)
		r.wantQuiet()
		if !slices.Equal(r.ready.Watch, []string{"a"}) {
			t.Fatalf("Watch is %q", r.ready.Watch)
		}
		if hints {
			r.e.Hint(r.now, "a", Watched, nil)
			r.take()
		} else {
			r.pass(PollFirst)
		}
		r.wantFlight(tenure.Acquire)
		r.settle()
		r.release(r.leaseOf(c))
		r.settle()
		r.ready.Watch = nil
		r.pass(Courtesy)
		r.acquire("a", 0)
		r.wantFlight(tenure.Acquire)
		r.settle()
		if len(r.ready.Watch) > 0 {
			t.Errorf("Watch is %q for a call that does not wait", r.ready.Watch)
		}
	}
}

// TestAKeyIsNotContendedForLong: later calls ask for the key at once.
func TestAKeyIsNotContendedForLong(t *testing.T) {
	r := newRig(t)
	r.awaited = true
	r.release(r.granted("a"))
	r.settle()
	r.pass(Courtesy + Contended)
	c := r.acquire("a", time.Minute)
	r.wantFlight(tenure.Acquire)
	r.settle()
	r.leaseOf(c)
}

func TestASingleTryLearnsWhatTheFirstLearns(t *testing.T) {
	r := newRig(t)
	r.another("a")
	first := r.acquire("a", time.Minute)
	try := r.acquire("a", 0)
	r.wantFlight(tenure.Acquire)
	r.answer()
	r.wantErr(try, tenure.ErrHeld)
	r.wantOpen(first)
	r.wantQuiet()
	r.now = r.now.Add(time.Millisecond)
	late := r.acquire("a", 0) // the last refusal is older than this call
	r.wantFlight(tenure.Acquire)
	r.answer()
	r.wantErr(late, tenure.ErrHeld)
	r.wantQuiet()
}

func TestAContenderIsNotRefusedFromBelief(t *testing.T) {
	for name, wait := range map[string]time.Duration{"one try": 0, "waiting": time.Hour} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.granted("a")
			r.apply([]tenure.Request{{
				Verb: tenure.Revoke, Key: "a", Secret: tenure.NewSecret(), Actor: "operator", Note: "why not",
			}}, r.now)
			c := r.acquire("a", wait)
			r.live(2 * time.Second)
			r.leaseOf(c) // not only after the next renewal
		})
	}
}

func TestACallBehindALocalHolderCostsNothingAtFirst(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	c := r.acquire("a", time.Minute)
	r.pass(900 * time.Millisecond)
	r.wantQuiet()
	r.release(l)
	r.settle()
	r.leaseOf(c)
}

func TestAWatchLastsAsLongAsSomebodyWaits(t *testing.T) {
	r := newRig(t)
	secret := r.another("a")
	one, two := r.acquire("a", Forever), r.acquire("a", Forever)
	r.answer()
	if got := r.ready.Watch; len(got) != 1 || got[0] != "a" {
		t.Fatalf("Watch is %v", got)
	}
	r.e.Hint(r.now, "a", Watched, nil)
	r.take()
	r.wantFlight(tenure.Acquire) // earlier changes were not announced
	r.answer()
	r.wantQuiet()
	asked := 0
	for range 40 { // polls only make up for lost hints
		r.pass(time.Second)
		if len(r.flying) > 0 {
			asked++
			r.answer()
		}
	}
	if asked < 5 || asked > 15 {
		t.Errorf("asked %d times in 40 s while hints come", asked)
	}
	r.free("a", secret)
	r.e.Hint(r.now, "a", Changed, nil)
	r.take()
	r.wantFlight(tenure.Acquire)
	r.answer()
	l := r.leaseOf(one)
	if len(r.ready.Unwatch) != 0 {
		t.Error("hints were stopped while somebody waits")
	}
	r.release(l)
	r.settle()
	r.leaseOf(two)
	if len(r.ready.Unwatch) != 1 || len(r.ready.Watch) != 1 {
		t.Errorf("Watch %v, Unwatch %v, want one of each", r.ready.Watch, r.ready.Unwatch)
	}
}

func TestAPollComesNoLaterThanTheKnownDeadline(t *testing.T) {
	r := newRig(t)
	r.another("a")
	c := r.acquire("a", Forever)
	r.answer()
	r.e.Hint(r.now, "a", Watched, nil)
	r.take()
	r.live(time.Minute + 50*time.Millisecond)
	r.leaseOf(c)
}

func TestPatienceEndsWithOneMoreAsk(t *testing.T) {
	r := newRig(t)
	r.another("a")
	c := r.acquire("a", 10*time.Second)
	r.live(10*time.Second - 1)
	r.wantOpen(c)
	r.live(1)
	r.wantErr(c, tenure.ErrHeld)
}

func TestReportsMoveNoDeadline(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	before := l.Deadline()
	r.now = r.now.Add(5 * time.Second)
	c := r.begin(&Call{Request: tenure.Request{Verb: tenure.Report, Key: "a", Secret: l.Secret, Progress: "half"}, Lease: l})
	r.answer()
	r.wantErr(c, nil)
	if l.Deadline() != before {
		t.Errorf("the deadline moved by %s", l.Deadline().Sub(before))
	}
	if l.Record.Progress != "half" {
		t.Errorf("the record says %q", l.Record.Progress)
	}
}

func TestAStalledLeaseIsLookedAtBeforeItIsGivenUp(t *testing.T) {
	r := newRig(t)
	c := newAcquire("a", 0)
	c.Policy.StallAfter = 10 * time.Second
	r.begin(c)
	r.settle()
	l := r.leaseOf(c)
	r.pass(20 * time.Second)
	r.wantQuiet()
	if len(r.ready.Look) == 0 || r.ready.Look[0] != l {
		t.Fatal("nobody looks at the record")
	}
	r.apply([]tenure.Request{{Verb: tenure.Report, Key: "a", Secret: l.Secret, Progress: "elsewhere"}}, r.now)
	r.e.Looked(r.now, l, r.records["a"], storeEpoch.Add(time.Duration(r.now)))
	r.take()
	r.wantFlight(tenure.Renew)
	r.settle()
	r.live(2 * time.Minute)
	if l.Lost == nil || l.Lost.Loss != renewal.Stalled {
		t.Errorf("the lease ended as %+v, want stalled", l.Lost)
	}
}

func TestCloseAnswersEverybodyAndResolvesForTwoSeconds(t *testing.T) {
	closed := errors.New("closed")
	r := newRig(t)
	l := r.granted("held")
	asking := r.acquire("asking", Forever)
	behind := r.acquire("asking", Forever)
	report := r.begin(&Call{Request: tenure.Request{Verb: tenure.Report, Key: "held", Secret: l.Secret}, Lease: l})
	r.e.Close(r.now, closed)
	r.take()
	for _, c := range []*Call{asking, behind} {
		r.wantErr(c, closed)
	}
	if l.Lost == nil || l.Lost.Loss != renewal.Closed {
		t.Errorf("the lease ended as %+v", l.Lost)
	}
	late := r.acquire("late", 0)
	r.wantErr(late, closed)
	r.wantOpen(report)
	r.pass(2 * time.Second)
	r.wantErr(report, closed)
	if !r.e.Left() {
		t.Error("the engine does not say that it left something")
	}
	for len(r.flying) > 0 {
		r.lose(false)
	}
	if !r.idle || r.wake != renewal.Never {
		t.Errorf("idle is %t, wake %d", r.idle, r.wake)
	}
}

func TestCloseIsIdleAtOnceWhenNothingIsLeft(t *testing.T) {
	r := newRig(t)
	r.granted("a")
	r.e.Close(r.now, errors.New("closed"))
	r.take()
	if !r.idle || r.e.Left() {
		t.Errorf("idle is %t, left %t", r.idle, r.e.Left())
	}
}

func TestReleasesOfOneLeaseShareTheOutcome(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	one, two := r.release(l), r.release(l)
	r.wantFlight(tenure.Release)
	r.answer()
	r.wantErr(one, nil)
	r.wantErr(two, nil)
	r.wantErr(r.release(l), nil)
	r.wantQuiet()
}

func TestAReleaseWithoutAnOutcomeCanBeTriedAgain(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	c := r.release(l)
	for c.state != done {
		if len(r.flying) > 0 {
			r.lose(false)
		}
		r.pass(100 * time.Millisecond)
	}
	r.wantErr(c, store.ErrUnknown)
	for len(r.flying) > 0 {
		r.lose(false)
	}
	c = r.release(l)
	r.settle()
	r.wantErr(c, nil)
}

func TestAReleaseIsSentEvenIfItsCallerLeavesAtOnce(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	r.acquire("b", 0) // in flight
	c := r.release(l)
	r.e.Abandon(r.now, c, context.Canceled)
	r.take()
	r.wantErr(c, context.Canceled)
	r.settle()
	if got := r.records["a"].State; got != tenure.Free {
		t.Errorf("the key is %s, want it free", got)
	}
}

func TestAGuardThatRemembersMoreIsAskedForAgainAboveIt(t *testing.T) {
	r := newRig(t)
	c := newAcquire("a", 0)
	c.Guarded = true
	r.begin(c)
	r.answer()
	r.wantOpenRaising(c)
	l := r.ready.Raise[0].Reply.Lease
	above := l.Token + 1000
	r.e.Raised(r.now, c, above, fence.ErrStale)
	r.take()
	r.wantFlight(tenure.Release, tenure.Acquire)
	r.answer()
	r.e.Raised(r.now, c, 0, nil)
	r.take()
	if got := r.leaseOf(c); got.Token <= above {
		t.Errorf("the token is %d, want one above %d", got.Token, above)
	}
}

func (r *rig) wantOpenRaising(c *Call) {
	r.t.Helper()
	if c.state != raising || len(r.ready.Raise) == 0 {
		r.t.Fatalf("the call is in state %d, want its fence to be raised", c.state)
	}
}

func TestAGuardThatRefusesEndsTheAcquireAndReleasesTheKey(t *testing.T) {
	for name, above := range map[string]fence.Token{"another token would not help": 0, "the second time": 5} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := newAcquire("a", 0)
			c.Guarded = true
			r.begin(c)
			r.answer()
			for c.state == raising {
				r.e.Raised(r.now, c, above, fence.ErrStale)
				r.take()
				r.settle()
			}
			r.wantErr(c, fence.ErrStale)
			if got := r.records["a"].State; got != tenure.Free {
				t.Errorf("the key is %s, want it free", got)
			}
		})
	}
}

func TestAnExpiredLeaseIsResumedWithItsToken(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	r.pass(2 * time.Minute)
	for len(r.flying) > 0 {
		r.lose(false)
	}
	if l.Lost == nil {
		t.Fatal("the lease lives")
	}
	c := r.begin(&Call{Request: tenure.Request{Verb: tenure.Renew, Key: "a", Secret: l.Secret, Resume: true}, Lease: l})
	r.settle()
	if got := r.leaseOf(c); got.Token != l.Token || got.Since != l.Since {
		t.Errorf("resumed as %+v", got)
	}
	next := r.acquire("a", time.Minute)
	r.release(c.Reply.Lease)
	r.wantFlight(tenure.Release, tenure.Acquire)
	r.settle()
	r.leaseOf(next)
}

func TestALostLeaseLetsTheNextCallAsk(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	c := r.acquire("a", time.Hour)
	r.apply([]tenure.Request{{
		Verb: tenure.Takeover, Key: "a", Secret: tenure.NewSecret(), Owner: "operator", Instance: "x", TTL: time.Second,
		Actor: "operator", Note: "why not",
	}}, r.now)
	r.live(25 * time.Second)
	if l.Lost == nil || l.Lost.Loss != renewal.TakenOver {
		t.Errorf("the lease ended as %+v", l.Lost)
	}
	r.leaseOf(c)
}

func TestTimeOnlyGoesForward(t *testing.T) {
	r := newRig(t)
	r.e.Tick(100)
	r.e.Tick(50)
	if r.e.now != 100 {
		t.Errorf("now is %d", r.e.now)
	}
	if at := renewal.After(5, Forever); at != renewal.Never {
		t.Errorf("for ever ends at %d", at)
	}
	if at := renewal.After(clock.Instant(5), 6); at != 11 {
		t.Errorf("11 is %d", at)
	}
}

// TestAPeriodOfOneCallDoesNotHoldUpOthers: the store refuses a call because its
// work was done in this period. A call without a period may have the key.
func TestAPeriodOfOneCallDoesNotHoldUpOthers(t *testing.T) {
	for name, wait := range map[string]time.Duration{"one try": 0, "waiting": time.Minute} {
		for order, answered := range map[string]bool{"before the refusal": false, "after the refusal": true} {
			t.Run(name+" "+order, func(t *testing.T) {
				r := newRig(t)
				r.release(r.granted("a"))
				r.settle()
				daily := newAcquire("a", Forever)
				daily.Request.Every = 24 * time.Hour
				r.begin(daily)
				if answered {
					r.settle()
				}
				plain := r.acquire("a", wait)
				r.settle()
				l := r.leaseOf(plain)
				r.wantOpen(daily)
				r.release(l)
				r.live(24 * time.Hour)
				r.leaseOf(daily)
			})
		}
	}
}

// TestCallsWithOnePeriodAskOnce: they share the refusal of the first.
func TestCallsWithOnePeriodAskOnce(t *testing.T) {
	r := newRig(t)
	r.release(r.granted("a"))
	r.settle()
	daily := func(wait time.Duration) *Call {
		c := newAcquire("a", wait)
		c.Request.Every = 24 * time.Hour
		return r.begin(c)
	}
	waiting := daily(Forever)
	var tries []*Call
	for range 10 {
		tries = append(tries, daily(0))
	}
	r.wantFlight(tenure.Acquire)
	r.answer()
	r.wantQuiet()
	for _, c := range tries {
		r.wantErr(c, tenure.ErrHeld)
	}
	r.wantOpen(waiting)
}

// TestAnAcquireThatAsksAboveJoinsTheQueueThatIsThere: by then its first lease
// is over, and other calls for the key have made a new queue.
func TestAnAcquireThatAsksAboveJoinsTheQueueThatIsThere(t *testing.T) {
	r := newRig(t)
	guarded := newAcquire("a", time.Hour)
	guarded.Guarded = true
	r.begin(guarded)
	r.answer()
	r.wantOpenRaising(guarded)
	l := r.ready.Raise[0].Reply.Lease
	r.apply([]tenure.Request{{
		Verb: tenure.Takeover, Key: "a", Secret: tenure.NewSecret(), Owner: "operator", Instance: "x", TTL: time.Hour,
		Actor: "operator", Note: "why not",
	}}, r.now)
	r.live(25 * time.Second)
	if l.Lost == nil {
		t.Fatal("the lease lives")
	}
	waiting := r.acquire("a", time.Hour)
	r.settle()
	r.e.Raised(r.now, guarded, l.Token+5, fence.ErrStale)
	r.take()
	r.settle()
	closed := errors.New("closed")
	r.e.Close(r.now, closed)
	r.take()
	for _, c := range []*Call{guarded, waiting} {
		r.wantErr(c, closed)
	}
}

// TestAReportThatNobodyWaitsForEndsALostLease: the store's refusal counts also
// when the caller has left.
func TestAReportThatNobodyWaitsForEndsALostLease(t *testing.T) {
	r := newRig(t)
	l := r.granted("a")
	c := r.begin(&Call{Request: tenure.Request{Verb: tenure.Report, Key: "a", Secret: l.Secret}, Lease: l})
	r.e.Abandon(r.now, c, context.Canceled)
	r.take()
	r.wantErr(c, context.Canceled)
	r.apply([]tenure.Request{{
		Verb: tenure.Revoke, Key: "a", Secret: tenure.NewSecret(), Actor: "operator", Note: "why not",
	}}, r.now)
	r.answer()
	if l.Lost == nil || l.Lost.Loss != renewal.TakenOver {
		t.Errorf("the lease ended as %+v", l.Lost)
	}
}
