package keep

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const ms = time.Millisecond

// waiting is a waiter that began at 0 and has asked once.
type waiting struct {
	*Waiter
	t   *testing.T
	now clock.Instant
}

func waitFor(t *testing.T, d time.Duration) *waiting {
	t.Helper()
	w := &waiting{t: t, Waiter: NewWaiter(Patience{For: d, Resolve: 5 * s, Call: 6 * s, Terms: minute}, 0, func() float64 { return 1 })}
	if got := w.step(Tick{}, 0); !got.Ask || !got.Fresh || got.Attempt != 1 {
		t.Fatalf("the first step wishes %+v, want to ask with a fresh secret", got)
	}
	return w
}

func (w *waiting) step(e Event, at time.Duration) Wishes {
	w.t.Helper()
	if clock.Instant(at) < w.now {
		w.t.Fatalf("the test went back in time, from %s to %s", time.Duration(w.now), at)
	}
	w.now = clock.Instant(at)
	return w.Step(e, w.now)
}

// answer brings the answer to the newest request, sent when it was asked for.
func (w *waiting) answer(err error, at time.Duration) Wishes {
	w.t.Helper()
	return w.step(Answered{Attempt: w.attempt, Sent: w.asked, Answer: store.Answer{Err: err}}, at)
}

func (w *waiting) grant(attempt int, sent, decided, at time.Duration) Wishes {
	w.t.Helper()
	return w.step(Answered{Attempt: attempt, Sent: clock.Instant(sent), Answer: confirmed(decided, time.Minute)}, at)
}

// wake ticks when the waiter wants to.
func (w *waiting) wake() Wishes {
	w.t.Helper()
	return w.step(Tick{}, time.Duration(max(w.Wake(), w.now)))
}

func held(left time.Duration) error {
	return &tenure.HeldError{Record: tenure.Record{Key: key}, Why: tenure.WhyHeld, Until: epoch.Add(left), Now: epoch}
}

func wantAsk(t *testing.T, got Wishes, attempt int) {
	t.Helper()
	if !got.Ask || got.Fresh || got.Attempt != attempt {
		t.Fatalf("wishes %+v, want to ask for the %dth time with the same secret", got, attempt)
	}
}

// TestOthersGoFirst: the first request is held back, whatever hints come, but not beyond the caller's patience.
func TestOthersGoFirst(t *testing.T) {
	for _, c := range []struct {
		patience, want time.Duration
		woken          bool
	}{{time.Minute, 25 * ms, false}, {time.Minute, 25 * ms, true}, {10 * ms, 10 * ms, false}, {0, 0, false}} {
		w := &waiting{t: t, Waiter: NewWaiter(Patience{For: c.patience, After: 25 * ms, Resolve: 5 * s, Call: 6 * s, Terms: minute}, 0, func() float64 { return 1 })}
		var e Event = Tick{}
		if c.woken {
			e = Woken{}
		}
		got := w.step(e, 0)
		if got.Ask != (c.want == 0) {
			t.Errorf("waiting %s, woken %t: at first it wishes %+v", c.patience, c.woken, got)
		}
		if !got.Ask {
			got = w.wake()
		}
		if !got.Ask || !got.Fresh || time.Duration(w.now) != c.want {
			t.Errorf("waiting %s, woken %t: at %s it wishes %+v, want to ask at %s", c.patience, c.woken, time.Duration(w.now), got, c.want)
		}
		if got := w.answer(held(time.Hour), max(c.want, c.patience)); c.patience < time.Minute && !got.Refused {
			t.Errorf("waiting %s: refused at the end of it, it wishes %+v", c.patience, got)
		}
	}
}

func TestAGrantIsGoodFromJustBeforeItWasSent(t *testing.T) {
	w := waitFor(t, 0)
	got := w.grant(1, 3*ms, 5*ms, 7*ms)
	if !got.Granted || !got.Done || got.Deadline != clock.Instant(3*ms+54*s) {
		t.Errorf("wishes %+v, want a grant until 54s after it was sent", got)
	}
	if w.Wake() != Never || w.step(Tick{}, time.Hour) != (Wishes{}) {
		t.Error("a wait that is over still wants something")
	}
}

func TestOneTryIsOneTry(t *testing.T) {
	w := waitFor(t, 0)
	got := w.answer(held(30*s), 10*ms)
	if !got.Refused || !got.Done || got.Ask || !errors.Is(got.Err, tenure.ErrHeld) {
		t.Errorf("wishes %+v, want to be refused at once", got)
	}
}

func TestPollsGrowWithinTheirBounds(t *testing.T) {
	for _, c := range []struct {
		name string
		why  tenure.Why
		hint bool
		most time.Duration
	}{
		{"held, no hints", tenure.WhyHeld, false, PollMax},
		{"held, hints come", tenure.WhyHeld, true, PollWatched},
		{"on hold", tenure.WhyHold, false, PollSettled},
		{"done in this period", tenure.WhyPeriod, false, PollSettled},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := waitFor(t, time.Duration(Never))
			if c.hint {
				w.step(Watched{}, 0)
				w.answer(held(time.Hour), 0)
			}
			var last time.Duration
			for range 12 {
				before := w.now
				w.answer(&tenure.HeldError{Why: c.why, Until: epoch.Add(time.Hour), Now: epoch}, time.Duration(w.now))
				if got := w.wake(); !got.Ask {
					t.Fatalf("wishes %+v, want to ask", got)
				}
				pause := w.now.Sub(before)
				if pause < PollFirst*3/4 || pause > c.most || pause < last {
					t.Fatalf("asked after %s, after %s before; want between %s and %s, and growing", pause, last, PollFirst, c.most)
				}
				last = pause
			}
			if last != c.most {
				t.Errorf("in the end polls every %s, want every %s", last, c.most)
			}
		})
	}
}

func TestTheKnownDeadlineIsNotSleptThrough(t *testing.T) {
	w := waitFor(t, time.Hour)
	for range 10 {
		w.answer(held(time.Hour), time.Duration(w.now))
		w.wake()
	}
	w.answer(held(100*ms), time.Duration(w.now))
	if got := w.Wake().Sub(w.now); got <= 100*ms || got > 100*ms+PollFirst+ms {
		t.Errorf("asks again after %s, want just after the deadline in 100ms", got)
	}
}

func TestWaitForEndsWithALastTry(t *testing.T) {
	w := waitFor(t, 10*s)
	asks := 0
	for {
		got := w.answer(held(time.Hour), time.Duration(w.now))
		if got.Refused {
			break
		}
		if asks++; !w.wake().Ask {
			t.Fatal("did not ask")
		}
	}
	if w.now != clock.Instant(10*s) {
		t.Errorf("gave up at %s, want at 10s", time.Duration(w.now))
	}
	if asks < 10 {
		t.Errorf("asked %d times", asks)
	}
}

func TestAPeriodThatOutlastsTheWaitIsNotWaitedFor(t *testing.T) {
	done := func(left time.Duration) error {
		return &tenure.HeldError{Why: tenure.WhyPeriod, Until: epoch.Add(left), Now: epoch}
	}
	w := waitFor(t, 10*s)
	w.answer(held(5*s), ms) // its holder may succeed meanwhile
	w.wake()
	if got := w.answer(done(time.Hour), time.Duration(w.now)); !got.Refused || !got.Done || !errors.Is(got.Err, tenure.ErrHeld) {
		t.Errorf("wishes %+v, want to be refused at once", got)
	}
	w = waitFor(t, 10*s)
	if got := w.answer(done(5*s), ms); got.Refused || w.Wake() > clock.Instant(10*s) {
		t.Errorf("wishes %+v, want to wait: the work is due again in time", got)
	}
}

func TestAHintIsFollowedAtOnce(t *testing.T) {
	w := waitFor(t, time.Hour)
	if got := w.answer(held(time.Hour), 0); !got.Watch {
		t.Fatalf("wishes %+v, want hints from the first refusal on", got)
	}
	wantAsk(t, w.step(Watched{}, ms), 2) // something may have happened before the watch began
	if got := w.answer(held(time.Hour), 2*ms); got.Ask || got.Watch {
		t.Fatalf("wishes %+v, want to wait for a hint", got)
	}
	wantAsk(t, w.step(Woken{}, 3*ms), 3)
	if got := w.step(Woken{}, 4*ms); got.Ask {
		t.Fatalf("wishes %+v, want to wait for the answer first", got)
	}
	wantAsk(t, w.answer(held(time.Hour), 5*ms), 4) // the hint came after the store had decided, perhaps
	w.answer(held(time.Hour), 6*ms)
	w.step(Unwatched{}, 7*ms)
	if got := w.Wake().Sub(w.now); got > PollMax {
		t.Errorf("after the watch broke it polls after %s, want at most %s", got, PollMax)
	}
}

// TestAWatchThatSeesWhatWasBeforeItIsTrusted: nothing is asked when it begins, and polls are for hints that are lost. The known deadline is not slept through.
func TestAWatchThatSeesWhatWasBeforeItIsTrusted(t *testing.T) {
	w := waitFor(t, time.Hour)
	w.answer(held(time.Hour), 0)
	if got := w.step(Watched{Since: true}, ms); got.Ask {
		t.Fatalf("wishes %+v, want to wait for a hint", got)
	}
	if got := w.Wake().Sub(w.now); got < PollHinted*3/4 || got > PollHinted {
		t.Errorf("polls after %s, want about %s", got, PollHinted)
	}
	wantAsk(t, w.step(Woken{}, 2*ms), 2)
	w.answer(held(100*ms), 3*ms)
	if got := w.Wake().Sub(w.now); got <= 100*ms || got > 100*ms+PollFirst+ms {
		t.Errorf("asks again after %s, want just after the deadline in 100ms", got)
	}

	w = waitFor(t, time.Hour)
	w.answer(held(100*ms), 0)
	w.step(Watched{Since: true}, ms)
	if got := w.Wake(); got > clock.Instant(101*ms+PollFirst) {
		t.Errorf("asks again at %s, want just after the deadline at 100ms", time.Duration(got))
	}

	w = waitFor(t, time.Hour)
	w.step(Watched{Since: true}, ms) // while the first request is on its way
	w.answer(held(time.Hour), 2*ms)
	if got := w.Wake().Sub(w.now); got < PollHinted*3/4 || got > PollHinted {
		t.Errorf("polls after %s, want about %s", got, PollHinted)
	}
	w = waitFor(t, time.Hour)
	w.answer(errDown, 0)
	if before, got := w.Wake(), w.step(Watched{Since: true}, ms); got.Ask || w.Wake() != before {
		t.Errorf("wishes %+v at %s: what is unknown is asked for as before, at %s", got, time.Duration(w.Wake()), time.Duration(before))
	}
}

func TestLaw6AnUnknownOutcomeIsAskedForWithTheSameSecret(t *testing.T) {
	w := waitFor(t, 0)
	if got := w.answer(errDown, 10*ms); got != (Wishes{}) {
		t.Fatalf("wishes %+v, want a pause", got)
	}
	wantAsk(t, w.wake(), 2)
	wantAsk(t, w.wake(), 3) // no answer at all
	at := time.Duration(w.now)
	got := w.grant(3, at, at, at)
	if !got.Granted || got.Deadline != clock.Instant(54*s) {
		t.Errorf("wishes %+v, want a grant that counts from the first send", got)
	}
}

func TestLaw6AnAnswerThatWasGivenUpOnIsStillTaken(t *testing.T) {
	w := waitFor(t, 0)
	wantAsk(t, w.wake(), 2)
	if got := w.grant(1, 0, 0, 1500*ms); !got.Granted {
		t.Errorf("wishes %+v, want the grant", got)
	}
	w = waitFor(t, 0)
	wantAsk(t, w.wake(), 2)
	got := w.step(Answered{Attempt: 1, Answer: store.Answer{Err: held(time.Hour)}}, 1500*ms)
	if !got.Refused || !got.Background {
		t.Errorf("wishes %+v, want to be refused, and the second copy to be resolved", got)
	}
}

func TestLaw6AGrantTooOldToBeOfUseIsNotTaken(t *testing.T) {
	w := waitFor(t, time.Hour)
	if got := w.grant(1, 0, 0, 54*s); got.Granted {
		t.Fatalf("wishes %+v, want no grant: it ends now", got)
	}
	wantAsk(t, w.wake(), 2)
	got := w.answer(&tenure.NotOwnedError{Why: tenure.WhyExpired}, time.Duration(w.now))
	if !got.Ask || !got.Fresh {
		t.Errorf("wishes %+v, want to ask with a fresh secret", got)
	}
}

func TestLaw6ASecretThatIsUsedUpIsReplaced(t *testing.T) {
	w := waitFor(t, time.Hour)
	w.answer(errDown, 0)
	wantAsk(t, w.wake(), 2)
	at := time.Duration(w.now)
	if got := w.answer(&tenure.NotOwnedError{Why: tenure.WhyReleased}, at); !got.Ask || !got.Fresh || got.Attempt != 3 {
		t.Fatalf("wishes %+v, want to ask with a fresh secret", got)
	}
	if got := w.grant(1, 0, 0, at); got.Granted {
		t.Fatalf("wishes %+v: a late reply to the old secret was taken for a grant to the new one", got)
	}
	if got := w.answer(&tenure.NotOwnedError{Why: tenure.WhyReleased}, at); got.Ask {
		t.Fatalf("wishes %+v, want a pause the second time", got)
	}
	if got := w.wake(); !got.Ask || !got.Fresh {
		t.Fatalf("wishes %+v, want to ask with yet another secret", got)
	}
	if got := w.grant(4, time.Duration(w.now), time.Duration(w.now), time.Duration(w.now)); !got.Granted {
		t.Errorf("wishes %+v, want the grant", got)
	}
}

func TestBadInputIsNotRepeated(t *testing.T) {
	w := waitFor(t, time.Hour)
	got := w.answer(fmt.Errorf("%w key", fence.ErrInvalid), ms)
	if !got.Refused || !got.Done || !errors.Is(got.Err, fence.ErrInvalid) {
		t.Errorf("wishes %+v, want to be refused at once", got)
	}
}

func TestAnUnreachableStoreIsSaidToBe(t *testing.T) {
	for _, c := range []struct {
		patience, silence, end time.Duration
	}{
		{0, 0, 5 * s},
		{0, 1, 5 * s},
		{30 * s, 0, 30 * s},
		{30 * s, 1, 30 * s},
	} {
		w := waitFor(t, c.patience)
		var got Wishes
		for !got.Unknown {
			if c.silence == 0 && w.open {
				got = w.answer(errDown, time.Duration(w.now))
			} else {
				got = w.wake()
			}
		}
		if at := time.Duration(w.now); at < c.end || at > c.end+PollMax || !errors.Is(got.Err, store.ErrUnknown) || !got.Background {
			t.Errorf("waiting %s: gave up at %s with %+v; want at %s, as unknown, to be resolved in the background", c.patience, at, got, c.end)
		}
	}
}

// TestWhyAnEarlierCopyCameToNothingIsTold: a store that takes long to say what is wrong says it of a copy that younger ones have followed.
func TestWhyAnEarlierCopyCameToNothingIsTold(t *testing.T) {
	w := waitFor(t, 0)
	wantAsk(t, w.wake(), 2)
	refused := store.Unknown(errors.New("connection refused"))
	w.step(Answered{Attempt: 1, Answer: store.Answer{Err: refused}}, 1500*ms)
	got := Wishes{}
	for !got.Unknown {
		got = w.wake()
	}
	if !errors.Is(got.Err, refused) {
		t.Errorf("the caller is told %v, want %v", got.Err, refused)
	}
}

func TestWhoLeavesInTimeLeavesNothingBehind(t *testing.T) {
	gone := errors.New("gone")
	w := waitFor(t, time.Hour)
	w.answer(held(time.Hour), 0)
	if got := w.step(Abandoned{Err: gone}, ms); !got.Done || got.Background || !errors.Is(got.Err, gone) {
		t.Errorf("wishes %+v, want nothing to do", got)
	}
	early := NewWaiter(Patience{Terms: minute}, 0, func() float64 { return 0 })
	if got := early.Step(Abandoned{Err: gone}, 0); !got.Done || got.Ask {
		t.Errorf("wishes %+v of a wait that had not begun", got)
	}
}

// TestLaw6AnAbandonedAcquireIsResolvedAndReleased goes through what can become of a request that nobody waits for.
func TestLaw6AnAbandonedAcquireIsResolvedAndReleased(t *testing.T) {
	unknownGrant := &tenure.NotOwnedError{Why: tenure.WhyUnknown}
	leave := func(t *testing.T) *waiting { // while the request is on its way
		w := waitFor(t, time.Hour)
		if got := w.step(Abandoned{}, 10*ms); !got.Background || got.Done || got.Release {
			t.Fatalf("wishes %+v, want to wait for the answer in the background", got)
		}
		return w
	}
	release := func(t *testing.T, got Wishes) {
		t.Helper()
		if !got.Release || got.Ask || got.Done {
			t.Fatalf("wishes %+v, want to release", got)
		}
	}
	done := func(t *testing.T, got Wishes, want Resolution) {
		t.Helper()
		if !got.Done || got.Resolved != want || got.Release || got.Ask {
			t.Fatalf("wishes %+v, want %q", got, want)
		}
	}
	t.Run("it was granted", func(t *testing.T) {
		w := leave(t)
		release(t, w.grant(1, 0, 0, 20*ms))
		done(t, w.answer(nil, 30*ms), WasGranted)
	})
	t.Run("it was refused", func(t *testing.T) {
		done(t, leave(t).answer(held(time.Hour), 20*ms), WasNot)
	})
	t.Run("its term was over", func(t *testing.T) {
		done(t, leave(t).answer(&tenure.NotOwnedError{Why: tenure.WhyExpired}, 20*ms), WasNot)
	})
	t.Run("no answer, then it turns out to be released", func(t *testing.T) {
		w := leave(t)
		release(t, w.wake())
		release(t, w.wake()) // no answer to that, either
		w.answer(errDown, time.Duration(w.now))
		release(t, w.wake())
		done(t, w.answer(nil, time.Duration(w.now)), WasGranted)
	})
	t.Run("not granted yet, perhaps later", func(t *testing.T) {
		w := leave(t)
		release(t, w.answer(errDown, 20*ms))
		for w.asked < clock.Instant(6*s) {
			if got := w.answer(unknownGrant, time.Duration(w.now)); got.Done {
				t.Fatalf("took it for never granted at %s, while a copy may be on its way until 6s", time.Duration(w.now))
			}
			release(t, w.wake())
		}
		done(t, w.answer(unknownGrant, time.Duration(w.now)), WasNot)
	})
	t.Run("a late answer to an early release proves nothing", func(t *testing.T) {
		w := leave(t)
		release(t, w.answer(errDown, 20*ms))
		early := Answered{Attempt: w.attempt, Sent: w.asked, Answer: store.Answer{Err: unknownGrant}}
		release(t, w.wake())
		if got := w.step(early, 10*s); got.Done {
			t.Errorf("wishes %+v, want to go on", got)
		}
	})
	t.Run("a copy was granted while the newest was refused", func(t *testing.T) {
		w := waitFor(t, 0)
		w.answer(errDown, 0)
		w.wake()
		got := w.answer(held(time.Hour), time.Duration(w.now))
		if !got.Refused || !got.Background {
			t.Fatalf("wishes %+v, want to tell the caller and go on in the background", got)
		}
		release(t, got.only())
		done(t, w.answer(&tenure.NotOwnedError{Why: tenure.WhySuperseded}, time.Duration(w.now)), WasNot)
	})
	t.Run("never known: left to lapse", func(t *testing.T) {
		w := leave(t)
		var got Wishes
		for !got.Done {
			got = w.wake()
		}
		done(t, got, WasLeft)
		if at := time.Duration(w.now); at < time.Minute || at > 2*time.Minute {
			t.Errorf("left alone at %s, want soon after it has lapsed", at)
		}
	})
}

// only is the part of the wishes that concerns what is to be sent.
func (w Wishes) only() Wishes { return Wishes{Release: w.Release, Ask: w.Ask, Attempt: w.Attempt} }
