package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// server is a driver that records its calls.
type server struct {
	hub    *Hub
	fail   error
	mute   bool          // it does not say that a subscription is open
	during func()        // runs while it subscribes
	slow   time.Duration // how long stepping out takes
	late   time.Duration // how long entering takes
	lost   error         // the error of entering, if its answer is lost

	mu    sync.Mutex
	calls []string
}

func (s *server) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *server) Subscribe(_ context.Context, key string) error {
	s.note("subscribe %s", key)
	if s.during != nil {
		s.during()
	}
	if s.fail == nil && !s.mute {
		s.hub.Opened(key)
	}
	return s.fail
}

func (s *server) Unsubscribe(key string) { s.note("unsubscribe %s", key) }

func (s *server) Enter(_ context.Context, key string) (bool, error) {
	time.Sleep(s.late)
	s.note("enter %s", key)
	return s.lost == nil, s.lost
}

func (s *server) StepOut(_ context.Context, keys []string) {
	time.Sleep(s.slow)
	slices.Sort(keys)
	s.note("step out %v", keys)
}

// want checks the calls since the last want.
func (s *server) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.calls, want) {
		t.Errorf("the server was told %q, want %q", s.calls, want)
	}
	s.calls = nil
}

// subscribed reports whether the last call about a key was Subscribe.
func (s *server) subscribed(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range slices.Backward(s.calls) {
		switch call {
		case "subscribe " + key:
			return true
		case "unsubscribe " + key:
			return false
		}
	}
	return false
}

func inHub(t *testing.T, test func(t *testing.T, h *Hub, s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		h := NewHub(s)
		h.clk, s.hub = clock.NewProcess(), h
		test(t, h, s)
		h.End(context.Background())
	})
}

func watch(ctx context.Context, t *testing.T, h *Hub, key string) <-chan struct{} {
	t.Helper()
	c, err := h.Watch(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAKeyIsSubscribedToOnceAndKeptForAWhile(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		one, two := watch(ctx, t, h, "a"), watch(ctx, t, h, "a")
		s.want(t, "subscribe a")
		h.Changed("a")
		<-one
		<-two
		cancel()
		if _, open := <-one; open {
			t.Error("a channel is open after its context")
		}
		s.want(t)
		time.Sleep(keptFor - time.Second)
		again, cancel := context.WithCancel(t.Context())
		watch(again, t, h, "a")
		s.want(t) // it is already subscribed to
		h.Refused("a", true)
		cancel()
		s.want(t, "step out [a]")
		time.Sleep(keptFor)
		s.want(t, "unsubscribe a")
		if len(h.keys) > 0 || h.waited.Load() != 0 {
			t.Errorf("%d keys are left, %d waited for", len(h.keys), h.waited.Load())
		}
	})
}

// TestASubscriptionNeedNotBeKept: with Kept 0 it ends with its last waiter.
func TestASubscriptionNeedNotBeKept(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		h.Kept = 0
		one, leave := context.WithCancel(t.Context())
		two, end := context.WithCancel(t.Context())
		watch(one, t, h, "a")
		watch(two, t, h, "a")
		leave()
		s.want(t, "subscribe a")
		end()
		s.want(t, "unsubscribe a")
		if len(h.keys) > 0 || h.waited.Load() != 0 {
			t.Errorf("%d keys are left, %d waited for", len(h.keys), h.waited.Load())
		}
	})
}

// TestAWaiterThatComesAsASubscriptionEndsIsWoken: whichever comes first.
func TestAWaiterThatComesAsASubscriptionEndsIsWoken(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		h.Kept = 0
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			watch(ctx, t, h, "a")
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			c := watch(ctx, t, h, "a")
			synctest.Wait()
			if !s.subscribed("a") {
				t.Fatal("somebody waits for a key that is not subscribed to")
			}
			h.Changed("a")
			<-c
			cancel()
			synctest.Wait()
			if s.subscribed("a") {
				t.Fatal("nobody waits for a key that is subscribed to")
			}
		}
	})
}

// TestAKeyThatIsLostWhileItIsSubscribedToIsUnsubscribed: nobody waits for it.
func TestAKeyThatIsLostWhileItIsSubscribedToIsUnsubscribed(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		s.during = h.Broke
		if _, err := h.Watch(t.Context(), "a"); !errors.Is(err, errBroke) {
			t.Errorf("%v, want %v", err, errBroke)
		}
		s.want(t, "subscribe a", "unsubscribe a")
		s.during = nil
		watch(t.Context(), t, h, "a")
		s.want(t, "subscribe a")
	})
}

func TestAStoreWithWaitersIsInTheQueue(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		if h.Watches("a") {
			t.Error("nobody waits")
		}
		c := watch(t.Context(), t, h, "a")
		if !h.Watches("a") || h.Watches("b") {
			t.Error("an acquire does not ask for a position")
		}
		h.Refused("a", true)
		s.want(t, "subscribe a")
		time.Sleep(refreshAt)
		s.want(t, "enter a")
		h.Freed("a", false)
		time.Sleep(2 * Grace)
		<-c // no store took the key
		h.Freed("a", true)
		<-c
		h.Granted("a")
	})
}

// TestAnAnswerThatComesTooLateLeavesNobodyInTheQueue: nobody waits any more
// when the refusal says that the store is in the queue.
func TestAnAnswerThatComesTooLateLeavesNobodyInTheQueue(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		h.Refused("a", true)
		s.want(t, "step out [a]")
	})
}

// TestALostAnswerLeavesNobodyInTheQueue: the server may have put the store into
// the queue although its answer is lost.
func TestALostAnswerLeavesNobodyInTheQueue(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		s.lost, s.late = errors.New("no answer"), time.Second
		ctx, end := context.WithCancel(t.Context())
		if _, err := h.Watch(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(enterAfter)
		synctest.Wait()
		h.Granted("key")
		end()
		time.Sleep(2 * time.Second)
		s.want(t, "subscribe key", "enter key", "step out [key]")
	})
}

func TestASubscriptionThatFailsIsTold(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		s.fail = errors.New("not allowed")
		if _, err := h.Watch(t.Context(), "a"); !errors.Is(err, s.fail) {
			t.Errorf("%v, want %v", err, s.fail)
		}
		if len(h.keys) > 0 || h.waited.Load() != 0 {
			t.Error("something is left")
		}
	})
}

// TestAServerThatSaysNothingKeepsACallerNoLongerThanItsContext: Watch returns
// when ctx ends.
func TestAServerThatSaysNothingKeepsACallerNoLongerThanItsContext(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		s.mute = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Watch(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
	})
}

// TestMessagesThatComeBackWakeEverybody: some may have been missed.
func TestMessagesThatComeBackWakeEverybody(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		c := watch(t.Context(), t, h, "a")
		h.Refused("a", true)
		h.Opened("a")
		<-c
	})
}

func TestAHubThatBrokeEndsItsWaitsAndTakesNewOnes(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		c := watch(t.Context(), t, h, "a")
		acts, err := h.Listen(t.Context(), "acts")
		if err != nil {
			t.Fatal(err)
		}
		h.Acted("acts", "jobs/one")
		if key := <-acts; key != "jobs/one" {
			t.Errorf("told of %q", key)
		}
		h.Broke()
		if _, open := <-c; open {
			t.Error("a wait goes on")
		}
		if _, open := <-acts; open {
			t.Error("acts are still told")
		}
		c = watch(t.Context(), t, h, "a")
		h.Changed("a")
		<-c
	})
}

func TestAHubThatHasEndedStepsOutOfAllQueues(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		for _, key := range []string{"a", "b", "c"} {
			watch(t.Context(), t, h, key)
			h.Refused(key, key != "c")
		}
		s.want(t, "subscribe a", "subscribe b", "subscribe c")
		h.End(t.Context())
		s.want(t, "step out [a b]")
		if _, err := h.Watch(t.Context(), "a"); !errors.Is(err, ErrEnded) {
			t.Errorf("%v, want the end", err)
		}
	})
}

// TestAHubThatHasEndedIsNotLeftInAQueueItWasEntering: End waits for the entry,
// and then steps out.
func TestAHubThatHasEndedIsNotLeftInAQueueItWasEntering(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		s.late = 10 * time.Millisecond
		watch(t.Context(), t, h, "a")
		time.Sleep(enterAfter)
		s.want(t, "subscribe a")
		h.End(t.Context())
		s.want(t, "enter a", "step out [a]")
	})
}

// TestATopicHasNoQueue: nobody enters it, and it can be lost without the keys.
func TestATopicHasNoQueue(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		c := watch(t.Context(), t, h, "a")
		h.Refused("a", true)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := h.Listen(ctx, "acts"); err != nil {
			t.Fatal(err)
		}
		acts, err := h.Listen(t.Context(), "acts")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		s.want(t, "subscribe a", "subscribe acts")
		h.Acted("acts", "jobs/one")
		<-acts
		h.Lose("acts")
		if _, open := <-acts; open {
			t.Error("acts are still told")
		}
		h.Changed("a")
		<-c
	})
}

// TestSteppingOutEndsBeliefInANewPosition: the store got a new position before
// the step out of the old one was carried out.
func TestSteppingOutEndsBeliefInANewPosition(t *testing.T) {
	inHub(t, func(t *testing.T, h *Hub, s *server) {
		s.slow = 10 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		watch(ctx, t, h, "a")
		h.Refused("a", true)
		cancel()
		synctest.Wait()
		watch(t.Context(), t, h, "a")
		h.Refused("a", true)
		if !h.Queued("a") {
			t.Error("it has no position")
		}
		s.want(t, "subscribe a")
		time.Sleep(s.slow)
		s.want(t, "step out [a]")
		if h.Queued("a") {
			t.Error("it still counts on its position")
		}
		time.Sleep(enterAfter)
		s.want(t, "enter a")
	})
}
