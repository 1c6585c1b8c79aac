package current

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// watched is a store in memory that counts the questions.
type watched struct {
	*mem.Store
	questions atomic.Int64
	down      atomic.Bool
	// hold, if set, runs after a record was read and before it is returned.
	hold atomic.Pointer[func()]

	mu   sync.Mutex
	acts []context.CancelFunc // end the subscriptions
}

func (w *watched) Get(ctx context.Context, key string) (tenure.Record, error) {
	w.questions.Add(1)
	if w.down.Load() {
		return tenure.Record{}, errors.New("the store is down")
	}
	rec, err := w.Store.Get(ctx, key)
	if hold := w.hold.Load(); hold != nil {
		(*hold)()
	}
	return rec, err
}

// Acts announces acts until cut is called.
func (w *watched) Acts(ctx context.Context) (<-chan string, error) {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.acts = append(w.acts, cancel)
	w.mu.Unlock()
	return w.Store.Acts(ctx)
}

func (w *watched) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cancel := range w.acts {
		cancel()
	}
}

// silent is a store that announces nothing.
type silent struct{ store.Store }

// scene is a store, a follower of it, and a clock for both, in a bubble.
type scene struct {
	*testing.T
	st  *watched
	f   *Follower
	ttl time.Duration
}

// play runs a test in a bubble of its own.
func play(t *testing.T, announces bool, script func(s *scene)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, st: &watched{Store: mem.New(nil)}, ttl: time.Minute}
		followed := store.Store(s.st)
		if !announces {
			followed = silent{s.st}
		}
		o := Options{MaxSilentAge: time.Second, MaxAge: 10 * time.Second, Timeout: 5 * time.Second, MaxKeys: 100}
		s.f = follow(followed, o, clock.NewProcess())
		synctest.Wait() // the follower listens now
		defer s.st.Close()
		defer s.f.Close()
		script(s)
	})
}

// apply carries out a request, which must succeed.
func (s *scene) apply(q tenure.Request) tenure.Record {
	s.Helper()
	a := s.st.Apply(s.Context(), []tenure.Request{q})[0]
	if a.Err != nil {
		s.Fatal(a.Err)
	}
	synctest.Wait() // all announcements have arrived
	return a.Record
}

func (s *scene) acquire(key, owner string) tenure.Record {
	s.Helper()
	return s.apply(tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: s.ttl})
}

func (s *scene) takeover(key string) tenure.Record {
	s.Helper()
	return s.apply(tenure.Request{Verb: tenure.Takeover, Key: key, Secret: tenure.NewSecret(), Owner: "op", TTL: s.ttl, Actor: "op", Note: "stuck"})
}

// current, replaced and unsure check a stamp, and how many questions the store
// got for it.
func (s *scene) current(what string, stamp fence.Stamp, questions int64) {
	s.Helper()
	s.check(what, stamp, nil, questions)
}

func (s *scene) replaced(what string, stamp fence.Stamp, questions int64) {
	s.Helper()
	s.check(what, stamp, tenure.ErrNotOwned, questions)
}

func (s *scene) unsure(what string, stamp fence.Stamp, questions int64) {
	s.Helper()
	s.check(what, stamp, store.ErrUnknown, questions)
}

func (s *scene) check(what string, stamp fence.Stamp, want error, questions int64) {
	s.Helper()
	before := s.st.questions.Load()
	if err := s.f.Check(s.Context(), stamp); !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
	if n := s.st.questions.Load() - before; n != questions {
		s.Errorf("%s: %d questions, want %d", what, n, questions)
	}
}

// TestATakeoverEndsTheCurrentOwnerAtOnce: the follower asks once before the
// takeover, and once after it.
func TestATakeoverEndsTheCurrentOwnerAtOnce(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		s.current("the first write", ann, 1)
		for range 1000 {
			s.current("another", ann, 0)
			time.Sleep(5 * time.Millisecond)
		}
		op := s.takeover("a").Stamp()
		s.replaced("a write after the takeover", ann, 1)
		s.replaced("another", ann, 0)
		s.current("the operator's", op, 0)
	})
}

// TestAnAnswerIsAskedForAgainInTime: acts can be missed, and releases are not
// announced.
func TestAnAnswerIsAskedForAgainInTime(t *testing.T) {
	play(t, true, func(s *scene) {
		q := tenure.Request{Verb: tenure.Acquire, Key: "a", Secret: tenure.NewSecret(), Owner: "ann", TTL: s.ttl}
		ann := s.apply(q).Stamp()
		s.current("the first write", ann, 1)
		q.Verb = tenure.Release
		s.apply(q)
		time.Sleep(10*time.Second + 1)
		s.replaced("a write after the release", ann, 1)
		s.replaced("another", ann, 0)
		bob := s.acquire("a", "bob").Stamp()
		s.current("a successor's write", bob, 1)
		s.replaced("the first owner's", ann, 0)
	})
}

// TestAStoreThatAnnouncesNothingIsAskedEverySecond: but only while writes come.
func TestAStoreThatAnnouncesNothingIsAskedEverySecond(t *testing.T) {
	play(t, false, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		s.current("the first write", ann, 1)
		time.Sleep(time.Second)
		s.current("a second later", ann, 0)
		s.takeover("a")
		time.Sleep(time.Nanosecond)
		s.replaced("after the takeover", ann, 1)
	})
}

// TestAnswersOfABrokenSubscriptionAgeFaster: a new subscription does not make
// them good again.
func TestAnswersOfABrokenSubscriptionAgeFaster(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		s.current("the first write", ann, 1)
		s.st.cut()
		synctest.Wait()
		s.current("at once after the cut", ann, 0)
		time.Sleep(time.Second + 1) // the follower listens again
		synctest.Wait()
		s.current("later", ann, 1)
		time.Sleep(9 * time.Second)
		s.current("as before", ann, 0)
	})
}

// TestALeaseThatIsNotRenewedEnds: it ends at the store's own deadline.
func TestALeaseThatIsNotRenewedEnds(t *testing.T) {
	play(t, true, func(s *scene) {
		s.ttl = 3 * time.Second
		q := tenure.Request{Verb: tenure.Acquire, Key: "a", Secret: tenure.NewSecret(), Owner: "ann", TTL: s.ttl}
		ann := s.apply(q).Stamp()
		s.current("the first write", ann, 1)
		time.Sleep(2 * time.Second)
		q.Verb = tenure.Renew
		s.apply(q)
		s.current("before the old deadline", ann, 0)
		time.Sleep(time.Second)
		s.current("after it", ann, 1)
		time.Sleep(2 * time.Second)
		s.replaced("after the new one", ann, 2) // read reads twice
		s.replaced("at once afterwards", ann, 0)
		time.Sleep(refusedFor + 1)
		q.Resume = true
		s.apply(q)
		s.current("when it was resumed", ann, 1)
	})
}

// TestAStampThatWasMadeUpIsNotCurrent: this holds for every token.
func TestAStampThatWasMadeUpIsNotCurrent(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		s.current("the owner's", ann, 1)
		higher, lower, grant, key := ann, ann, ann, ann
		higher.Token++
		lower.Token--
		grant.Grant = tenure.NewSecret().Grant()
		key.Key = "b"
		s.replaced("a higher token", higher, 1)
		s.replaced("a lower token", lower, 0)
		s.replaced("another grant", grant, 0)
		s.replaced("another key", key, 1)
		s.replaced("the higher token again", higher, 0)
		s.current("the owner's", ann, 0)
		ann.Grant = "x"
		s.check("a grant that cannot be", ann, fence.ErrInvalid, 0)
	})
}

// TestCallersShareAQuestion: 100 callers come while the store is slow.
func TestCallersShareAQuestion(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		hold := func() { time.Sleep(time.Second) }
		s.st.hold.Store(&hold)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := s.f.Check(s.Context(), ann); err != nil {
					s.Error(err)
				}
			})
		}
		all.Wait()
		if n := s.st.questions.Load(); n != 1 {
			s.Errorf("%d questions, want 1", n)
		}
	})
}

// TestAnActDuringAQuestionIsNotMissed: the follower had read the record before
// the act.
func TestAnActDuringAQuestionIsNotMissed(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		var once sync.Once
		hold := func() { once.Do(func() { s.takeover("a") }) }
		s.st.hold.Store(&hold)
		s.replaced("the write that asked", ann, 2)
	})
}

// TestANewOwnerIsNotRefusedByAnOlderAnswer: the store may have answered the
// question that the new owner joins before it granted the lease.
func TestANewOwnerIsNotRefusedByAnOlderAnswer(t *testing.T) {
	play(t, true, func(s *scene) {
		q := tenure.Request{Verb: tenure.Acquire, Key: "a", Secret: tenure.NewSecret(), Owner: "ann", TTL: s.ttl}
		ann := s.apply(q).Stamp()
		var once sync.Once
		var bob fence.Stamp
		granted := make(chan struct{})
		hold := func() {
			once.Do(func() {
				q.Verb = tenure.Release
				s.st.Apply(s.Context(), []tenure.Request{q})
				a := s.st.Apply(s.Context(), []tenure.Request{{Verb: tenure.Acquire, Key: "a", Secret: tenure.NewSecret(), Owner: "bob", TTL: s.ttl}})
				bob = a[0].Record.Stamp()
				close(granted)
				time.Sleep(time.Second)
			})
		}
		s.st.hold.Store(&hold)
		var first sync.WaitGroup
		first.Go(func() { _ = s.f.Check(s.Context(), ann) })
		<-granted
		if err := s.f.Check(s.Context(), bob); err != nil {
			s.Error(err)
		}
		first.Wait()
	})
}

// TestAStoreThatIsDownLeavesTheAnswerUnknown: but the follower still refuses
// old tokens by itself.
func TestAStoreThatIsDownLeavesTheAnswerUnknown(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		op := s.takeover("a").Stamp()
		s.current("the operator's", op, 1)
		s.st.down.Store(true)
		s.current("again", op, 0)
		s.replaced("an older owner's", ann, 0)
		time.Sleep(11 * time.Second)
		s.unsure("when the answer has aged", op, 1)
		s.unsure("at once afterwards", op, 0)
		s.replaced("an older owner's", ann, 0)
		s.st.down.Store(false)
		time.Sleep(time.Second + 1)
		s.current("when the store is back", op, 1)
	})
}

// TestAStoreThatForgetsIsNotBelieved: an old owner does not become current. But
// the next grant is believed at once, because its token is above all others.
func TestAStoreThatForgetsIsNotBelieved(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		op := s.takeover("a").Stamp()
		s.current("the operator's", op, 1)
		s.st.Wipe()
		time.Sleep(11 * time.Second)
		s.replaced("the operator's, forgotten", op, 1)
		s.replaced("the older owner's", ann, 0)
		s.current("the next owner's", s.acquire("a", "bob").Stamp(), 1)
	})
}

// TestTheFollowerRemembersAtMostMaxKeys: MaxKeys is the limit.
func TestTheFollowerRemembersAtMostMaxKeys(t *testing.T) {
	play(t, true, func(s *scene) {
		for n := range 1000 {
			s.current("a write", s.acquire(fmt.Sprint("key/", n), "ann").Stamp(), 1)
			if len(s.f.keys) > s.f.o.MaxKeys {
				s.Fatalf("%d keys are remembered", len(s.f.keys))
			}
		}
	})
}

// TestASourceThatDoesNotAnswerHoldsNobodyUp: not even if it ignores its
// context.
func TestASourceThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		answer := make(chan struct{})
		hold := func() { <-answer }
		s.st.hold.Store(&hold)
		begun := time.Now()
		s.unsure("a write", ann, 1)
		s.unsure("another", ann, 0)
		if took := time.Since(begun); took != s.f.o.Timeout {
			s.Errorf("they took %s", took)
		}
		s.f.Close()
		if took := time.Since(begun); took != 2*s.f.o.Timeout {
			s.Errorf("Close returned after %s", took)
		}
		close(answer)
	})
}

// TestFewQuestionsAreUnderWayAtOnce: also if callers ask about many keys.
func TestFewQuestionsAreUnderWayAtOnce(t *testing.T) {
	play(t, true, func(s *scene) {
		var under, most atomic.Int64
		hold := func() {
			if n := under.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Millisecond)
			under.Add(-1)
		}
		s.st.hold.Store(&hold)
		stamp := s.acquire("a", "ann").Stamp()
		var all sync.WaitGroup
		for n := range 500 {
			stamp.Key = fmt.Sprint("made-up/", n)
			made := stamp
			all.Go(func() {
				if err := s.f.Check(s.Context(), made); !errors.Is(err, tenure.ErrNotOwned) {
					s.Error(err)
				}
			})
		}
		all.Wait()
		if n := most.Load(); n != mostQuestions {
			s.Errorf("%d questions were under way at once, want %d", n, mostQuestions)
		}
	})
}

// TestAPauseBetweenRecordAndClockRefusesNobody: the holder renews during the
// pause.
func TestAPauseBetweenRecordAndClockRefusesNobody(t *testing.T) {
	play(t, true, func(s *scene) {
		q := tenure.Request{Verb: tenure.Acquire, Key: "a", Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Second}
		ann := s.apply(q).Stamp()
		var once sync.Once
		hold := func() {
			once.Do(func() {
				time.Sleep(900 * time.Millisecond)
				q.Verb = tenure.Renew
				s.st.Apply(s.Context(), []tenure.Request{q})
				time.Sleep(900 * time.Millisecond)
			})
		}
		s.st.hold.Store(&hold)
		s.current("the holder's write", ann, 2)
	})
}

// TestAClosedFollowerIsUnsure: and no goroutine of it is left.
func TestAClosedFollowerIsUnsure(t *testing.T) {
	play(t, true, func(s *scene) {
		ann := s.acquire("a", "ann").Stamp()
		s.current("the first write", ann, 1)
		s.f.Close()
		s.unsure("after Close", ann, 0)
	})
}

// TestAskKnowsTheHolder: Ask needs no follower.
func TestAskKnowsTheHolder(t *testing.T) {
	t.Parallel()
	st := mem.New(nil)
	defer st.Close()
	q := tenure.Request{Verb: tenure.Acquire, Key: "a", Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	stamp := st.Apply(t.Context(), []tenure.Request{q})[0].Record.Stamp()
	if err := Ask(t.Context(), st, stamp); err != nil {
		t.Error(err)
	}
	q.Verb = tenure.Release
	st.Apply(t.Context(), []tenure.Request{q})
	if err := Ask(t.Context(), st, stamp); !errors.Is(err, tenure.ErrNotOwned) {
		t.Error(err)
	}
	down := &watched{Store: st}
	down.down.Store(true)
	if err := Ask(t.Context(), down, stamp); !errors.Is(err, store.ErrUnknown) {
		t.Error(err)
	}
}
