package turns

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// stepped is a Queue with one waiter, driven by hand.
type stepped struct {
	*testing.T
	Queue
	c chan struct{}
}

func newStepped(t *testing.T) *stepped {
	s := &stepped{T: t, Queue: newQueue(), c: make(chan struct{}, 1)}
	s.Join(0, s.c)
	return s
}

// inQueueAt puts the store into the queue.
func (s *stepped) inQueueAt(now time.Duration) *stepped {
	s.Ask()
	if s.Refused(clock.Instant(now), true) {
		s.Error("it is to step out, though somebody waits")
	}
	return s
}

func (s *stepped) wantWoken(want bool, when string) {
	s.Helper()
	woken := false
	select {
	case <-s.c:
		woken = true
	default:
	}
	if woken != want {
		s.Errorf("%s: woken %t, want %t", when, woken, want)
	}
}

const ms = clock.Instant(time.Millisecond)

func TestTheNamedStoreIsWokenAtOnce(t *testing.T) {
	s := newStepped(t).inQueueAt(0)
	s.Freed(ms, true, 0)
	s.wantWoken(true, "named")
}

func TestTheOtherStoresWaitAMomentForTheNamedOne(t *testing.T) {
	for _, random := range []float64{0, 0.99} {
		s := newStepped(t).inQueueAt(0)
		s.Freed(ms, false, random)
		s.wantWoken(false, "another was named")
		due := s.Due()
		if due < ms.Add(Grace) || due > ms.Add(Grace*3/2) {
			t.Errorf("due after %s", time.Duration(due))
		}
		s.Freed(50*ms, false, 0) // hearing it again does not restart the grace
		if s.Due() != due {
			t.Errorf("put off until %s", time.Duration(s.Due()))
		}
		s.Tick(due)
		s.wantWoken(true, "nobody came")
	}
	s := newStepped(t).inQueueAt(0)
	s.Freed(ms, false, 0)
	s.Taken(2 * ms)
	s.Tick(1000 * ms)
	s.wantWoken(false, "it was taken")
}

// TestAStoreWithoutAPositionIsWokenByEverything: perhaps no other store waits.
func TestAStoreWithoutAPositionIsWokenByEverything(t *testing.T) {
	s := newStepped(t)
	s.Freed(ms, false, 0)
	s.wantWoken(true, "freed for another")
	s.Taken(ms)
	s.wantWoken(true, "taken")
	s.inQueueAt(0)
	s.Freed(clock.Instant(positionLasts), false, 0)
	s.wantWoken(true, "freed when its position was old")
	s.Changed()
	s.wantWoken(true, "changed")
}

// TestAStoreThatDoesNotAskEntersByItself: and keeps its position.
func TestAStoreThatDoesNotAskEntersByItself(t *testing.T) {
	s := newStepped(t)
	if s.Due() != clock.Instant(enterAfter) || s.Tick(s.Due()-1) || !s.Tick(s.Due()) {
		t.Fatalf("it does not enter after %s", enterAfter)
	}
	if s.Entered(60*ms, true) {
		t.Error("it steps out, though somebody waits")
	}
	s.wantWoken(true, "something may have happened before it had a position")
	if due := s.Due(); due != (60 * ms).Add(refreshAt) {
		t.Fatalf("it enters again at %s", time.Duration(due))
	}
	if !s.Tick(s.Due()) {
		t.Fatal("it does not enter again")
	}
	s.Entered((60 * ms).Add(refreshAt), true)
	s.wantWoken(false, "its position was kept all the time")
}

func TestAStoreThatFindsTheQueueFullTriesAgain(t *testing.T) {
	s := newStepped(t)
	s.Tick(s.Due())
	s.Entered(60*ms, false)
	s.wantWoken(true, "it has no position")
	s.Freed(70*ms, false, 0)
	s.wantWoken(true, "it still has none")
	if s.Due() == clock.Never {
		t.Error("it never tries again")
	}
}

// TestANamedStoreEntersAgain: unless its acquire does so first.
func TestANamedStoreEntersAgain(t *testing.T) {
	s := newStepped(t).inQueueAt(0)
	s.Freed(ms, true, 0)
	if s.Due() != ms.Add(enterAfter) {
		t.Errorf("due at %s", time.Duration(s.Due()))
	}
	s.inQueueAt(time.Duration(2 * ms))
	if s.Due() != (2 * ms).Add(refreshAt) {
		t.Errorf("due at %s", time.Duration(s.Due()))
	}
}

func TestTheLastToLeaveStepsOut(t *testing.T) {
	s := newStepped(t).inQueueAt(0)
	other := make(chan struct{}, 1)
	s.Join(0, other)
	if s.Leave(other) {
		t.Error("it steps out, though somebody waits")
	}
	if !s.Leave(s.c) || s.Leave(s.c) {
		t.Error("the last does not step out, once")
	}
	if _, open := <-s.c; open {
		t.Error("the channel is open")
	}
	if s.Due() != clock.Never || s.Waited() {
		t.Error("something is left")
	}
	if !s.Refused(ms, true) {
		t.Error("an answer that comes late leaves it in the queue")
	}
	if never := newStepped(t); never.Leave(never.c) {
		t.Error("it steps out of a queue that it has not asked for")
	}
	granted := newStepped(t).inQueueAt(0)
	granted.Granted(ms)
	if granted.Leave(granted.c) {
		t.Error("it steps out, though a grant has taken it out")
	}
}

// TestAStoreThatFindsTheQueueFullTriesLessAndLess: each attempt costs the
// server two requests, and hundreds of stores may be too many for the queue.
func TestAStoreThatFindsTheQueueFullTriesLessAndLess(t *testing.T) {
	s := newStepped(t)
	tries := 0
	for s.Due() < clock.Instant(time.Minute) {
		now := s.Due()
		if s.Tick(now) {
			tries++
			s.Entered(now, false)
		}
	}
	if tries > 12 {
		t.Errorf("%d attempts in a minute", tries)
	}
	s.Entered(s.Due(), true)
	if got := s.Due().Sub(s.until.Add(-positionLasts)); got != refreshAt {
		t.Errorf("in the queue, it enters again after %s", got)
	}
}

// TestAStoreEntersOnceAtATime: however often it is named. Anybody who may
// publish can name it, and an entry may take two seconds.
func TestAStoreEntersOnceAtATime(t *testing.T) {
	s := newStepped(t)
	entering := 0
	for now := ms; now < 2000*ms; now += ms {
		s.Freed(now, true, 0)
		if now >= s.Due() && s.Tick(now) {
			entering++
		}
	}
	if entering != 1 {
		t.Errorf("%d entries are under way", entering)
	}
	s.Entered(2000*ms, true)
	s.Freed(2001*ms, true, 0)
	if !s.Tick(s.Due()) {
		t.Error("it does not enter again")
	}
}
