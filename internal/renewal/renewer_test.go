package renewal

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	ms  = time.Millisecond
	s   = time.Second
	key = "sim/key"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// minute is a policy that gives round numbers: margin 6 s, interval 20 s, quick
// retries from 1.25 s on. A call is taken for lost after 10 s.
var minute = Policy{TTL: time.Minute, MaxFailures: 3}

// kept is the Renewer of a lease that was granted at 0, with a log of its
// orders.
type kept struct {
	Renewer
	t     *testing.T
	now   clock.Instant
	sends []time.Duration // when it renewed
	looks []time.Duration
}

func keepFor(t *testing.T, policy Policy) *kept {
	t.Helper()
	at := confirmed(0, policy.TTL)
	return &kept{t: t, Renewer: NewRenewer(policy, policy.Until(0, 0, at), 0, 0, at.Record, 1)}
}

// confirmed makes the store's confirmation of a renewal that it decided at a
// time.
func confirmed(at, ttl time.Duration) store.Answer {
	return store.Answer{Record: tenure.Record{Key: key, State: tenure.Held, Deadline: epoch.Add(at + ttl)}, Now: epoch.Add(at)}
}

var errDown = store.Unknown(errors.New("connection refused"))

// step takes an event at a time.
func (k *kept) step(e Event, at time.Duration) Orders {
	k.t.Helper()
	if clock.Instant(at) < k.now {
		k.t.Fatalf("the test went back in time, from %s to %s", time.Duration(k.now), at)
	}
	k.now = clock.Instant(at)
	o := k.Step(e, k.now)
	if o.Renew {
		k.sends = append(k.sends, at)
	}
	if o.Look {
		k.looks = append(k.looks, at)
	}
	return o
}

// run ticks whenever the Renewer wants to, until a time or the end of the
// lease. It gives every renewal the store's answer for that time (nil: none).
func (k *kept) run(until time.Duration, answer func(at time.Duration) *store.Answer) Orders {
	k.t.Helper()
	for k.lost == "" && k.Wake() <= clock.Instant(until) {
		at := time.Duration(max(k.Wake(), k.now))
		o := k.step(Tick{Jitter: 1}, at)
		if o.Renew && answer != nil {
			if a := answer(at); a != nil {
				o = k.step(Answered{Sent: clock.Instant(at), Answer: *a}, at)
			}
		}
		if o.Lost != "" {
			return o
		}
	}
	return Orders{}
}

func down(time.Duration) *store.Answer   { return &store.Answer{Err: errDown} }
func silent(time.Duration) *store.Answer { return nil }
func up(at time.Duration) *store.Answer {
	a := confirmed(at, time.Minute)
	return &a
}

func (k *kept) wantSends(want ...time.Duration) {
	k.t.Helper()
	if len(k.sends) != len(want) {
		k.t.Fatalf("renewed at %v, want %v", k.sends, want)
	}
	for i := range want {
		if k.sends[i] != want[i] {
			k.t.Fatalf("renewed at %v, want %v", k.sends, want)
		}
	}
}

func (k *kept) wantLost(o Orders, loss Loss, at time.Duration) {
	k.t.Helper()
	if o.Lost != loss || k.lost != loss || time.Duration(k.now) != at {
		k.t.Fatalf("lost as %q (%q) at %s, want %q at %s", o.Lost, k.lost, time.Duration(k.now), loss, at)
	}
	if k.Wake() != Never || k.Early() != Never || k.Step(Tick{}, k.now) != (Orders{}) {
		k.t.Fatal("a lease that is over still wants something")
	}
}

func TestALeaseIsRenewedAtAThirdOfItsTTL(t *testing.T) {
	k := keepFor(t, minute)
	k.run(70*s, up)
	k.wantSends(20*s, 40*s, 60*s)
	if got := k.Deadline(); got != clock.Instant(60*s+54*s) {
		t.Errorf("local deadline %s, want 54s after the last renewal", time.Duration(got))
	}
}

func TestJitterBringsRenewalsForwardByAtMostATenth(t *testing.T) {
	at := confirmed(0, time.Minute)
	for _, j := range []float64{0, 0.5, 0.999} {
		k := NewRenewer(minute, clock.Instant(54*s), 0, 0, at.Record, j)
		if wake := time.Duration(k.Wake()); wake < 18*s || wake > 20*s {
			t.Errorf("jitter %v: first renewal after %s, want 18s to 20s", j, wake)
		}
	}
}

func TestLeasesThatTickTogetherStayTogether(t *testing.T) {
	at := confirmed(0, time.Minute)
	one := NewRenewer(minute, clock.Instant(54*s), 0, 0, at.Record, 1)
	two := NewRenewer(minute, clock.Instant(56*s), clock.Instant(2*s), clock.Instant(2*s), at.Record, 0.9)
	if two.Wake() == one.Wake() || two.Early() > one.Wake() {
		t.Fatalf("the leases are due at %s and, from %s, %s: the test needs them near each other", time.Duration(one.Wake()), time.Duration(two.Early()), time.Duration(two.Wake()))
	}
	now := one.Wake()
	tick := Tick{Jitter: 0.3}
	if !one.Step(tick, now).Renew || !two.Step(tick, now).Renew {
		t.Fatal("a renewal that is nearly due did not join one that is")
	}
	for _, k := range []*Renewer{&one, &two} {
		k.Step(Answered{Sent: now, Answer: confirmed(time.Duration(now), time.Minute)}, now)
	}
	if one.Wake() != two.Wake() {
		t.Errorf("next due at %s and %s, want the same time", time.Duration(one.Wake()), time.Duration(two.Wake()))
	}
}

func TestLaw5TheLocalDeadlineCountsFromTheFirstSend(t *testing.T) {
	k := keepFor(t, minute)
	if got := k.Deadline(); got != clock.Instant(54*s) {
		t.Fatalf("local deadline %s, want TTL less a tenth", time.Duration(got))
	}
	k.step(Tick{Jitter: 1}, 20*s)
	k.step(Answered{Sent: clock.Instant(20 * s), Answer: store.Answer{Err: errDown}}, 21*s)
	if got := k.Deadline(); got != clock.Instant(54*s) {
		t.Errorf("an unconfirmed renewal moved the local deadline to %s", time.Duration(got))
	}
	if o := k.step(Tick{Jitter: 1}, 23*s); !o.Renew {
		t.Fatal("the renewal was not sent again")
	}
	o := k.step(Answered{Sent: clock.Instant(23 * s), Answer: confirmed(23*s, time.Minute)}, 24*s)
	if got := k.Deadline(); got != clock.Instant(20*s+54*s) {
		t.Errorf("local deadline %s, want it to count from the first send at 20s", time.Duration(got))
	}
	if !o.Renewed || o.Margin != 30*s {
		t.Errorf("orders %+v, want a renewal confirmed 30s before the end", o)
	}
}

func TestLaw5ALateAnswerCountsFromItsOwnSend(t *testing.T) {
	k := keepFor(t, minute)
	k.step(Tick{Jitter: 1}, 20*s)
	k.step(Tick{Jitter: 1}, 30*s) // taken for lost, sent again
	k.step(Tick{Jitter: 1}, 40*s) // the next interval
	k.step(Answered{Sent: clock.Instant(40 * s), Answer: confirmed(40*s, time.Minute)}, 41*s)
	k.step(Answered{Sent: clock.Instant(20 * s), Answer: confirmed(20*s, time.Minute)}, 42*s)
	if got := k.Deadline(); got != clock.Instant(94*s) {
		t.Errorf("local deadline %s: an answer that was overtaken changed it", time.Duration(got))
	}
	k.wantSends(20*s, 30*s, 40*s)
}

func TestLaw5ARepeatedGrantCountsWhatTheStoreSaysIsLeft(t *testing.T) {
	a := confirmed(0, time.Minute) // granted at 0,
	a.Now = epoch.Add(40 * s)      // and asked for again at 40
	if got := minute.Until(clock.Instant(40*s), clock.Instant(40*s), a); got != clock.Instant(54*s) {
		t.Errorf("local deadline %s, want 54s", time.Duration(got))
	}
	if got := minute.Until(0, clock.Instant(40*s), confirmed(40*s, time.Minute)); got != clock.Instant(54*s) {
		t.Errorf("local deadline %s, want 54s after the first send", time.Duration(got))
	}
}

func TestNotOwnedEndsTheLeaseAtOnce(t *testing.T) {
	cases := []struct {
		why  tenure.Why
		rec  tenure.Record
		want Loss
	}{
		{tenure.WhySuperseded, tenure.Record{Key: key}, Superseded},
		{tenure.WhyTakenOver, tenure.Record{Key: key}, TakenOver},
		{tenure.WhyReleased, tenure.Record{Key: key}, Released},
		{tenure.WhyExpired, tenure.Record{Key: key}, Expired},
		{tenure.WhyUnknown, tenure.Record{Key: key}, Superseded},
		{tenure.WhyUnknown, tenure.Record{}, Expired},
	}
	for _, c := range cases {
		k := keepFor(t, minute)
		refusal := &tenure.NotOwnedError{Why: c.why, Record: c.rec}
		o := k.run(25*s, func(time.Duration) *store.Answer { return &store.Answer{Err: refusal} })
		k.wantLost(o, c.want, 20*s)
		if !errors.Is(o.Err, tenure.ErrNotOwned) {
			t.Errorf("%s: cause %v, want the store's refusal", c.why, o.Err)
		}
	}
}

func TestTheStoresWordComesBeforeTheClocks(t *testing.T) {
	k := keepFor(t, minute)
	k.step(Tick{Jitter: 1}, 20*s)
	o := k.step(Answered{Sent: clock.Instant(20 * s), Answer: store.Answer{Err: &tenure.NotOwnedError{Why: tenure.WhyTakenOver}}}, 100*s)
	k.wantLost(o, TakenOver, 100*s)
}

func TestAnUnreachableStoreIsAskedOftenUntilTheLocalDeadline(t *testing.T) {
	k := keepFor(t, minute)
	o := k.run(time.Hour, down)
	k.wantLost(o, Unreachable, 54*s)
	if !errors.Is(o.Err, store.ErrUnknown) {
		t.Errorf("cause %v, want what the store's call came to", o.Err)
	}
	within := 0
	for _, at := range k.sends {
		if at < 40*s {
			within++
		}
	}
	if within < 4 {
		t.Errorf("renewed at %v, want quick retries within the first interval", k.sends)
	}
}

func TestFailuresCountOncePerInterval(t *testing.T) {
	for most, end := range map[int]time.Duration{1: 40 * s, 2: 54 * s} {
		policy := minute
		policy.MaxFailures = most
		k := keepFor(t, policy)
		k.wantLost(k.run(time.Hour, down), Unreachable, end)
	}
	short := minute
	// The interval is 15 s: half of the time before the notice.
	short.Notice, short.MaxFailures = 24*s, 2
	k := keepFor(t, short)
	k.wantLost(k.run(time.Hour, silent), Unreachable, 30*s)
}

func TestASuccessfulRenewalForgivesFailures(t *testing.T) {
	policy := minute
	policy.MaxFailures = 2
	k := keepFor(t, policy)
	o := k.run(10*time.Minute, func(at time.Duration) *store.Answer {
		if at/(20*s)%2 == 0 {
			return up(at)
		}
		return down(at)
	})
	if o.Lost != "" {
		t.Errorf("lost as %s at %s, though every other interval brought a renewal", o.Lost, time.Duration(k.now))
	}
}

func TestAHangingRenewalEndsTheLeaseInTime(t *testing.T) {
	k := keepFor(t, minute)
	k.wantLost(k.run(time.Hour, silent), Unreachable, 54*s)
	k.wantSends(20*s, 30*s, 40*s, 50*s)
}

func TestAWakeFromSuspendEndsTheLease(t *testing.T) {
	k := keepFor(t, minute)
	k.run(30*s, up)
	k.wantLost(k.step(Tick{Jitter: 1}, time.Hour), Expired, time.Hour)
}

func TestAConfirmationAfterTheDeadlineRevivesNothing(t *testing.T) {
	k := keepFor(t, minute)
	k.step(Tick{Jitter: 1}, 20*s)
	o := k.step(Answered{Sent: clock.Instant(20 * s), Answer: confirmed(20*s, time.Minute)}, 55*s)
	if o.Lost == "" {
		t.Error("the lease lived on after its local deadline")
	}
}

func TestNoticeEndsTheLeaseBeforeItsDeadline(t *testing.T) {
	policy := minute
	policy.Notice = 30 * s
	k := keepFor(t, policy)
	k.wantLost(k.run(time.Hour, silent), Unreachable, 24*s)
	if got := k.Deadline(); got != clock.Instant(54*s) {
		t.Errorf("local deadline %s, want it unmoved", time.Duration(got))
	}
	if k.sends[0] != 12*s {
		t.Errorf("first renewed at %s, want half of what is left before the notice", k.sends[0])
	}
}

func TestAStalledLeaseIsNotRenewed(t *testing.T) {
	policy := minute
	policy.StallAfter = 30 * s
	k := keepFor(t, policy)
	o := k.run(time.Hour, up)
	k.wantLost(o, Stalled, 20*s+54*s)
	k.wantSends(20 * s)
	if len(k.looks) != 2 || k.looks[0] != 40*s || k.looks[1] != 60*s {
		t.Errorf("looked for another process's progress at %v, want at 40s and 60s", k.looks)
	}
}

func TestProgressTakesRenewalUpAgain(t *testing.T) {
	policy := minute
	policy.StallAfter = 30 * s
	reported := confirmed(0, time.Minute)
	reported.Record.ProgressAt = epoch.Add(45 * s)
	for name, e := range map[string]Event{
		"reported here":                   Progressed{},
		"reported by another process":     Looked{Record: reported.Record, Now: epoch.Add(50 * s)},
		"an older report changes nothing": Looked{Record: confirmed(0, s).Record, Now: epoch.Add(50 * s)},
	} {
		t.Run(name, func(t *testing.T) {
			k := keepFor(t, policy)
			k.run(41*s, up)
			o := k.step(e, 50*s)
			if want := name != "an older report changes nothing"; o.Renew != want {
				t.Fatalf("orders %+v, want a renewal: %v", o, want)
			}
			if o.Renew {
				k.step(Answered{Sent: clock.Instant(50 * s), Answer: confirmed(50*s, time.Minute)}, 50*s)
				k.run(70*s, up)
				if k.sends[len(k.sends)-1] != 70*s {
					t.Errorf("renewed at %v, want renewals to go on", k.sends)
				}
			}
		})
	}
}

// TestARenewalTakenUpAgainGetsItsWholeInterval: a renewal that was withheld and
// has only just been sent must not count as failed.
func TestARenewalTakenUpAgainGetsItsWholeInterval(t *testing.T) {
	policy := minute
	policy.StallAfter, policy.MaxFailures = 15*s, 1
	k := keepFor(t, policy)
	k.run(39*s, up) // withheld from 20 s on
	if o := k.step(Progressed{}, 40*s-ms); !o.Renew {
		t.Fatalf("orders %+v, want a renewal", o)
	}
	if o := k.run(40*s+ms, nil); o.Lost != "" {
		t.Fatalf("lost as %q when the store had been asked for a millisecond", o.Lost)
	}
	k.step(Answered{Sent: clock.Instant(40*s - ms), Answer: confirmed(40*s, time.Minute)}, 40*s+ms)
	if k.lost != "" || k.Deadline() != clock.Instant(94*s-ms) {
		t.Errorf("lost as %q, the deadline is %s", k.lost, time.Duration(k.Deadline()))
	}
}

// TestALossSaysOnlyWhatLedToIt: its error is nil if one of the holder's own
// limits ended the lease, and it is no answer that a later one has replaced.
func TestALossSaysOnlyWhatLedToIt(t *testing.T) {
	policy := minute
	policy.MaxHold = 30 * s
	k := keepFor(t, policy)
	if o := k.run(time.Hour, down); o.Lost != HeldTooLong || o.Err != nil {
		t.Errorf("held too long: %q, %v", o.Lost, o.Err)
	}
	policy = minute
	policy.StallAfter = 30 * s
	k = keepFor(t, policy)
	if o := k.run(time.Hour, down); o.Lost != Stalled || o.Err != nil {
		t.Errorf("stalled: %q, %v", o.Lost, o.Err)
	}
	k = keepFor(t, minute)
	k.step(Tick{Jitter: 1}, 20*s)
	k.step(Tick{Jitter: 1}, 30*s) // a second copy
	k.step(Answered{Sent: clock.Instant(30 * s), Answer: confirmed(30*s, time.Minute)}, 30*s)
	k.step(Answered{Sent: clock.Instant(20 * s), Answer: *down(0)}, 31*s)
	if o := k.step(Tick{}, time.Hour); o.Lost != Expired || o.Err != nil {
		t.Errorf("after a suspend: %q, %v", o.Lost, o.Err)
	}
}

// TestALeaseRenewedAgainIsNotStalled: a late answer brought news of progress,
// so the lease is renewed again. If the store is then down, the loss is
// Unreachable.
func TestALeaseRenewedAgainIsNotStalled(t *testing.T) {
	policy := minute
	policy.StallAfter = 45 * s
	k := keepFor(t, policy)
	k.run(39*s, up)
	k.run(61*s, nil) // sent at 40 s and not answered; withheld from 60 s on
	late := confirmed(40*s, time.Minute)
	late.Record.ProgressAt = epoch.Add(40 * s)
	k.step(Answered{Sent: clock.Instant(40 * s), Answer: late}, 62*s)
	k.wantLost(k.run(time.Hour, nil), Unreachable, 40*s+54*s)
	if last := k.sends[len(k.sends)-1]; last < 80*s {
		t.Errorf("renewed at %v, want renewals to go on at 80s", k.sends)
	}
}

func TestReportsSeenInRenewalsAreProgress(t *testing.T) {
	policy := minute
	policy.StallAfter = 30 * s
	k := keepFor(t, policy)
	o := k.run(5*time.Minute, func(at time.Duration) *store.Answer {
		a := confirmed(at, time.Minute)
		a.Record.ProgressAt = a.Now.Add(-5 * s)
		return &a
	})
	if o.Lost != "" {
		t.Errorf("lost as %s, though another process reported all the time", o.Lost)
	}
}

func TestMaxHoldEndsTheLease(t *testing.T) {
	policy := minute
	policy.MaxHold = 100 * s
	k := keepFor(t, policy)
	k.wantLost(k.run(time.Hour, up), HeldTooLong, 100*s)

	at := confirmed(0, time.Minute)
	resumed := NewRenewer(policy, clock.Instant(54*s), clock.Instant(-90*s), 0, at.Record, 1)
	if got := resumed.Wake(); got != clock.Instant(10*s) {
		t.Errorf("a resumed lease ends after another %s, want 10s: MaxHold bounds the whole", time.Duration(got))
	}
}

func TestTheHoldersOwnEndIsTheCause(t *testing.T) {
	for _, loss := range []Loss{Released, Closed} {
		k := keepFor(t, minute)
		k.wantLost(k.step(Ended{Loss: loss}, 10*s), loss, 10*s)
	}
}

func TestAnOldGrantIsRenewedSooner(t *testing.T) {
	a := confirmed(0, time.Minute)
	k := NewRenewer(minute, clock.Instant(54*s), clock.Instant(46*s), clock.Instant(46*s), a.Record, 1)
	if got := k.Wake(); got != clock.Instant(50*s) {
		t.Errorf("first renewal at %s, want halfway to the deadline", time.Duration(got))
	}
}

func TestAStepCostsNoAllocation(t *testing.T) {
	at := confirmed(0, time.Minute)
	k := NewRenewer(minute, clock.Instant(54*s), 0, 0, at.Record, 1)
	if n := testing.AllocsPerRun(100, func() { k.Step(Tick{Jitter: 0.5}, clock.Instant(s)) }); n != 0 {
		t.Errorf("%v allocations a step, want none: ten thousand leases tick together", n)
	}
}

func TestADoubtedLeaseIsRenewedAtOnce(t *testing.T) {
	k := keepFor(t, minute)
	if o := k.step(Doubted{}, 5*s); !o.Renew || o.Again {
		t.Fatalf("%+v, want a renewal", o)
	}
	k.step(Answered{Sent: clock.Instant(5 * s), Answer: confirmed(5*s, time.Minute)}, 5*s)
	k.run(60*s, up)
	// Renewals in turn count from there.
	k.wantSends(5*s, 25*s, 45*s)
}

// TestADoubtedLeaseIsNotTrustedToARenewalUnderWay: the store may have confirmed
// that renewal before it gave the key to another.
func TestADoubtedLeaseIsNotTrustedToARenewalUnderWay(t *testing.T) {
	k := keepFor(t, minute)
	k.run(20*s, silent)
	if o := k.step(Doubted{}, 21*s); !o.Renew || !o.Again {
		t.Fatalf("%+v, want another copy", o)
	}
	o := k.step(Answered{Sent: clock.Instant(21 * s), Answer: store.Answer{Err: &tenure.NotOwnedError{Why: tenure.WhyTakenOver}}}, 21*s)
	k.wantLost(o, TakenOver, 21*s)
}

// TestDoubtsCostFewRenewals: anybody who shares the store may raise doubts, any
// number of them.
func TestDoubtsCostFewRenewals(t *testing.T) {
	k := keepFor(t, minute)
	for at := time.Duration(0); at < 100*s; at += 10 * time.Millisecond {
		if at > 0 && k.Wake() <= clock.Instant(at) {
			k.step(Tick{Jitter: 1}, at)
			k.step(Answered{Sent: clock.Instant(at), Answer: confirmed(at, time.Minute)}, at)
		}
		if o := k.step(Doubted{}, at); o.Renew {
			k.step(Answered{Sent: clock.Instant(at), Answer: confirmed(at, time.Minute)}, at)
		}
	}
	if n := len(k.sends); n < 5 || n > 30 {
		t.Errorf("%d renewals in five times their interval", n)
	}
}

// TestADoubtedLeaseThatHasStalledIsNotRenewed: a stalled lease must end.
func TestADoubtedLeaseThatHasStalledIsNotRenewed(t *testing.T) {
	policy := minute
	policy.StallAfter = 10 * s
	k := keepFor(t, policy)
	k.run(20*s, up)
	if o := k.step(Doubted{}, 21*s); o.Renew {
		t.Errorf("%+v, want no renewal", o)
	}
}

// retimed is the store's confirmation of a renewal that it decided at a time,
// with the TTL of the record and the time that is left.
func retimed(at, ttl, left time.Duration) store.Answer {
	a := confirmed(at, left)
	a.Record.TTL = ttl
	return a
}

func TestALongerTTLIsFollowedFromItsConfirmationOn(t *testing.T) {
	k := keepFor(t, minute)
	k.step(Answered{Sent: clock.Instant(10 * s), Answer: retimed(10*s, 10*time.Minute, 10*time.Minute)}, 11*s)
	if got := k.Deadline(); got != clock.Instant(10*s+9*time.Minute) {
		t.Errorf("local deadline %s, want the new TTL less a tenth", time.Duration(got))
	}
	k.run(600*s, func(at time.Duration) *store.Answer {
		a := retimed(at, 10*time.Minute, 10*time.Minute)
		return &a
	})
	k.wantSends(20*s, 220*s, 420*s)
}

func TestLaw5AShorterTTLMovesNoDeadlineAndRenewsInTime(t *testing.T) {
	k := keepFor(t, minute)
	k.step(Answered{Sent: clock.Instant(10 * s), Answer: retimed(10*s, 6*s, 50*s)}, 10*s)
	if got := k.Deadline(); got != clock.Instant(54*s) {
		t.Errorf("local deadline %s, want the old one", time.Duration(got))
	}
	k.run(15*s, func(at time.Duration) *store.Answer {
		a := retimed(at, 6*s, 60*s-at)
		return &a
	})
	k.wantSends(12*s, 14*s)
	// Once the old deadline is near, the new TTL alone counts.
	k.step(Answered{Sent: clock.Instant(59 * s / 2), Answer: retimed(58*s, 6*s, 6*s)}, 30*s)
	if got := k.Deadline(); got > clock.Instant(54*s) {
		t.Errorf("local deadline %s: it counts from after the send", time.Duration(got))
	}
}

func TestAnOvertakenAnswerBringsNoOldTTLBack(t *testing.T) {
	k := keepFor(t, minute)
	k.step(Answered{Sent: clock.Instant(10 * s), Answer: retimed(10*s, 6*s, 50*s)}, 10*s)
	k.step(Answered{Sent: clock.Instant(9 * s), Answer: retimed(9*s, time.Minute, time.Minute)}, 11*s)
	if k.TTL() != 6*s || k.Wake() > clock.Instant(12*s) {
		t.Errorf("TTL %s, next renewal at %s", k.TTL(), time.Duration(k.Wake()))
	}
}

func TestATTLThatIsTooShortForNoticeIsSetBack(t *testing.T) {
	policy := minute
	policy.Notice = 20 * s
	k := keepFor(t, policy)
	k.run(17*s, up) // 17 s is the interval
	k.sends = nil
	k.step(Answered{Sent: k.now, Answer: retimed(time.Duration(k.now), 30*s, time.Minute)}, time.Duration(k.now))
	if k.TTL() != time.Minute || k.Asks() != time.Minute {
		t.Fatalf("TTL %s, asks for %s; want its own minute", k.TTL(), k.Asks())
	}
	if o := k.step(Tick{Jitter: 1}, time.Duration(k.Wake())); !o.Renew || time.Duration(k.now) > 18*s {
		t.Fatalf("orders %+v at %s, want a renewal out of turn", o, time.Duration(k.now))
	}
	k.step(Answered{Sent: k.now, Answer: retimed(time.Duration(k.now), time.Minute, time.Minute)}, time.Duration(k.now))
	if k.Asks() != 0 {
		t.Errorf("it still asks for %s", k.Asks())
	}
}
