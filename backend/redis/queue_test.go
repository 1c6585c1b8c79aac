package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// waiter is a store with a connection of its own, like one in another process,
// and its watch of a key.
type waiter struct {
	*Store
	t     *testing.T
	mine  tenure.Request
	woken <-chan struct{}
	end   context.CancelFunc
	asked atomic.Int64
}

// waits makes a waiter. It watches the key but has not asked for it.
func waits(t *testing.T, server *testenv.RedisServer, key, owner string) *waiter {
	t.Helper()
	w := &waiter{t: t, Store: New(dial(t, server), &Options{Prefix: server.Prefix()}), mine: claim(key, owner)}
	t.Cleanup(func() { w.Close() })
	w.watchKey()
	return w
}

func (w *waiter) watchKey() {
	w.t.Helper()
	var ctx context.Context
	ctx, w.end = context.WithCancel(w.t.Context())
	var err error
	if w.woken, err = w.Watch(ctx, w.mine.Key); err != nil {
		w.t.Fatal(err)
	}
}

// ask asks for the key and reports whether it was granted.
func (w *waiter) ask() bool {
	w.asked.Add(1)
	a := one(w.t.Context(), w.Store, w.mine)
	if a.Err != nil && !errors.Is(a.Err, tenure.ErrHeld) {
		w.t.Errorf("%s: %v", w.mine.Owner, a.Err)
	}
	return a.Err == nil
}

// takes asks for the key, which must be free, and ends the watch.
func (w *waiter) takes() {
	w.t.Helper()
	if !w.ask() {
		w.t.Fatalf("%s has not got the key", w.mine.Owner)
	}
	w.end()
	for range w.woken { // until it is closed
	}
}

func (w *waiter) refused() {
	w.t.Helper()
	if w.ask() {
		w.t.Fatalf("%s was granted what is held", w.mine.Owner)
	}
}

func (w *waiter) release() {
	w.t.Helper()
	if a := one(w.t.Context(), w.Store, then(tenure.Release, w.mine)); a.Err != nil {
		w.t.Fatalf("%s: %v", w.mine.Owner, a.Err)
	}
	w.mine = claim(w.mine.Key, w.mine.Owner)
}

// wakes waits for a wake-up.
func (w *waiter) wakes(why string) {
	w.t.Helper()
	select {
	case <-w.woken:
	case <-time.After(testenv.Patience):
		w.t.Fatalf("%s was not woken: %s", w.mine.Owner, why)
	}
}

// sleeps checks that nothing has woken it so far.
func (w *waiter) sleeps(why string) {
	w.t.Helper()
	select {
	case <-w.woken:
		w.t.Errorf("%s was woken: %s", w.mine.Owner, why)
	default:
	}
}

// queueLength returns the length of a key's queue.
func queueLength(t *testing.T, client *goredis.Client, st *Store, key string) int {
	t.Helper()
	text, err := client.HGet(t.Context(), st.names.record(key), "w").Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		t.Fatal(err)
	}
	return len(text) / 16
}

// TestAReleaseWakesWhoseTurnItIs checks that the others are woken only if that
// waiter does not take the key.
func TestAReleaseWakesWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	ann := waits(t, server, "queue/turn", "ann")
	ann.takes()
	bob, cat := waits(t, server, "queue/turn", "bob"), waits(t, server, "queue/turn", "cat")
	bob.refused()
	cat.refused()
	drained(bob, cat)
	released := time.Now()
	ann.release()
	bob.wakes("it is his turn")
	bob.takes()
	if time.Since(released) < turns.Grace { // on a very busy machine she may have been woken after the grace
		cat.sleeps("it was bob's turn, and he has taken the key")
	}
	drained(cat)
	bob.watchKey()
	bob.release()
	cat.wakes("it is her turn")
	// She does not ask, like a process that is stopped or dead.
	bob.wakes("he is not in the queue any more, and hears of everything")
	if !ann.ask() {
		t.Fatal("a wake-up reserves nothing: ann may have the key")
	}
	bob.refused()
	drained(bob)
	ann.release()
	bob.wakes("cat has been named and is not in the queue any more")
}

// TestAnOvertakenWaiterKeepsItsPosition has a store that was not in the queue
// ask first. The overtaken waiter is named again the next time. If it does not
// come, the next one is.
func TestAnOvertakenWaiterKeepsItsPosition(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	ann := waits(t, server, "queue/overtaken", "ann")
	ann.takes()
	bob, cat := waits(t, server, "queue/overtaken", "bob"), waits(t, server, "queue/overtaken", "cat")
	bob.refused()
	cat.refused()
	drained(bob)
	for range 2 {
		ann.release()
		bob.wakes("it is his turn")
		if !ann.ask() {
			t.Fatal("ann may have the key, if she asks first")
		}
		bob.refused()
	}
	ann.release()
	bob.wakes("it is his turn")
	if !ann.ask() {
		t.Fatal("ann may have the key, if she asks first")
	}
	drained(cat)
	ann.release() // and bob has not asked
	cat.wakes("it is her turn")
	if !cat.ask() {
		t.Error("cat has not got the key")
	}
}

func drained(all ...*waiter) {
	for _, w := range all {
		select {
		case <-w.woken:
		default:
		}
	}
}

// TestANamedWaiterThatDoesNotComeStallsNobody stops the named waiter, or cuts
// its connection. The next is woken after a moment.
func TestANamedWaiterThatDoesNotComeStallsNobody(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(w *waiter){
		"stopped": func(*waiter) {}, // it does not ask when it is woken
		"dead":    func(w *waiter) { _ = w.client.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			key := "queue/" + name
			ann := waits(t, server, key, "ann")
			ann.takes()
			bob, cat, dan := waits(t, server, key, "bob"), waits(t, server, key, "cat"), waits(t, server, key, "dan")
			for _, w := range []*waiter{bob, cat, dan} {
				w.refused()
			}
			drained(bob, cat, dan)
			goes(bob)
			ann.release()
			// A hint of before may come late, so nothing is said about how soon
			// they are woken. Package turns tests that bob has his time.
			for _, w := range []*waiter{cat, dan} {
				w.wakes("bob did not come")
			}
			if !dan.ask() {
				t.Error("dan has not got the key")
			}
		})
	}
}

// TestAKeyHandedOnInABatchWakesNobody has a client release a key and grant it
// to its own next caller in one batch. The key was never free for others.
func TestAKeyHandedOnInABatchWakesNobody(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client := dial(t, server)
	ann := waits(t, server, "queue/batch", "ann")
	ann.takes()
	bob := waits(t, server, "queue/batch", "bob")
	bob.refused()
	next := claim(ann.mine.Key, "ann")
	for _, a := range ann.Apply(t.Context(), []tenure.Request{then(tenure.Release, ann.mine), next}) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	ann.mine = next
	inQueue(t, client, bob.Store, next.Key, 1)
	ann.release()
	bob.wakes("it is his turn")
}

// TestWaitersThatStopLeaveTheQueue checks that waiters that have left, or
// whose store was closed, are not named.
func TestWaitersThatStopLeaveTheQueue(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client := dial(t, server)
	ann := waits(t, server, "queue/leave", "ann")
	ann.takes()
	bob, cat, dan := waits(t, server, "queue/leave", "bob"), waits(t, server, "queue/leave", "cat"), waits(t, server, "queue/leave", "dan")
	for _, w := range []*waiter{bob, cat, dan} {
		w.refused()
		w.refused() // asking again does not give a second position
	}
	inQueue(t, client, ann.Store, "queue/leave", 3)
	bob.end()
	if err := cat.Close(); err != nil {
		t.Fatal(err)
	}
	inQueue(t, client, ann.Store, "queue/leave", 1) // bob and cat have left
	ann.release()
	dan.wakes("it is his turn")
	if !dan.ask() {
		t.Error("dan has not got the key")
	}
	inQueue(t, client, ann.Store, "queue/leave", 0)
}

// TestAQueueIsBounded checks that a queue has at most 64 waiters, and that
// lapsed waiters leave it.
func TestAQueueIsBounded(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	clock := storetest.NewClock()
	clock.Advance(time.Since(clock.Now()))
	st := New(client, &Options{Prefix: server.Prefix(), Retention: time.Hour})
	t.Cleanup(func() { st.Close() })
	st.clock = clock.Now
	mine := claim("queue/long", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	// No store watches here, because its hub would use the id while the test
	// changes it.
	for n := range 100 {
		st.id = fmt.Sprintf("store%03d", n)
		queued, err := (&listener{store: st}).Enter(ctx, st.names.record(mine.Key))
		if err != nil || queued != (n < 64) {
			t.Fatalf("store %d is in the queue: %v, %v", n, queued, err)
		}
	}
	if n := queueLength(t, client, st, mine.Key); n != 64 {
		t.Errorf("%d are in the queue, want 64", n)
	}
	// A waiter that has not asked for long is passed over. Then nobody is
	// named, and all are woken.
	clock.Advance(30 * time.Second)
	heard := client.Subscribe(ctx, st.names.record(mine.Key))
	defer heard.Close()
	if _, err := heard.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if a := one(ctx, st, then(tenure.Release, mine)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if said, err := heard.ReceiveMessage(ctx); err != nil || said.Payload != "" {
		t.Errorf("the release of a key whose queue has lapsed says %q, %v", said, err)
	}
	if n := queueLength(t, client, st, mine.Key); n != 0 {
		t.Errorf("%d are in a queue that has lapsed", n)
	}
	clock.Advance(2 * time.Hour)
	if a := one(ctx, st, claim(mine.Key, "cat")); a.Err != nil || a.Record.Cause != tenure.First {
		t.Errorf("after the retention: %v, cause %s", a.Err, a.Record.Cause)
	}
}

// TestEverybodyInTheQueueIsServed has 16 stores hand a key on 200 times. Each
// gets its turns, and asks in vain only to enter the queue.
func TestEverybodyInTheQueueIsServed(t *testing.T) {
	t.Parallel()
	const stores, handOffs = 16, 200
	server := testenv.Redis(t)
	var (
		all    sync.WaitGroup
		done   atomic.Int64
		asked  atomic.Int64
		served [stores]int
		mu     sync.Mutex
		taken  = make(chan struct{}) // closed when the key has been taken
		late   atomic.Int64          // hand-offs in which a busy machine may have passed a waiter over
	)
	ctx, cancel := context.WithTimeout(t.Context(), 3*testenv.Patience) // a late hand-off takes more than a tenth of a second
	defer cancel()
	for n := range stores {
		w := waits(t, server, "queue/all", fmt.Sprintf("store %d", n))
		all.Go(func() {
			for {
				for !w.ask() {
					select {
					case <-w.woken:
					case <-ctx.Done():
						asked.Add(w.asked.Load())
						return
					}
				}
				mu.Lock()
				close(taken)
				taken = make(chan struct{})
				next := taken
				mu.Unlock()
				served[n]++
				time.Sleep(2 * time.Millisecond) // its work: time for the last holder to enter the queue again
				if done.Add(1) >= handOffs {
					cancel()
				}
				w.release()
				released := time.Now()
				select {
				case <-next:
					if time.Since(released) > turns.Grace/2 { // others may have waited longer
						late.Add(1)
					}
				case <-ctx.Done():
				}
				if ctx.Err() != nil {
					asked.Add(w.asked.Load())
					return
				}
			}
		})
	}
	all.Wait()
	if n := done.Load(); n < handOffs {
		t.Fatalf("%d hand-offs, want %d: somebody was not woken", n, handOffs)
	}
	for n, times := range served {
		if times+int(late.Load()) < handOffs/stores/4 { // a store that is slow to enter the queue again has fewer turns
			t.Errorf("store %d had the key %d times of %d, of which %d were late", n, times, handOffs, late.Load())
		}
	}
	// Each store asks to enter the queue, and again when it is its turn. If all
	// were woken each time, there would be 16 requests. At a late hand-off all
	// are woken, and ask to enter the queue again.
	if most := 6*handOffs + 2*stores*late.Load(); asked.Load() > most {
		t.Errorf("%d requests for %d hand-offs, of which %d were late; want at most %d", asked.Load(), handOffs, late.Load(), most)
	}
	t.Logf("%.2f requests for each hand-off, %d of them late, served %v", float64(asked.Load())/handOffs, late.Load(), served)
}

// TestASubscriptionIsKeptForAWhile checks that a store which soon waits again
// needs no new subscription. That saves two commands each time.
func TestASubscriptionIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	w := waits(t, server, "queue/kept", "ann")
	name := w.names.record(w.mine.Key)
	subscribed := func() int64 { return client.PubSubNumSub(ctx, name).Val()[name] }
	w.end()
	testenv.Eventually(t, "the watch has ended", func() error {
		if w.hub.Watches(name) {
			return errors.New("not yet")
		}
		return nil
	})
	if n := subscribed(); n != 1 {
		t.Errorf("%d subscriptions after the watch has ended", n)
	}
	other := New(dial(t, server), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { other.Close() })
	other.hub.Kept = time.Millisecond
	w.Close()
	ctx, end := context.WithCancel(ctx)
	if _, err := other.Watch(ctx, w.mine.Key); err != nil {
		t.Fatal(err)
	}
	end()
	ctx = t.Context()
	testenv.Eventually(t, "the subscription has ended", func() error {
		if n := subscribed(); n != 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// TestAReleaseSaysWhetherOthersWait checks the answer by which a client lets
// other stores go first.
func TestAReleaseSaysWhetherOthersWait(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	holder := New(dial(t, server), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { holder.Close() })
	key := "queue/awaited"
	take := func() tenure.Request {
		mine := claim(key, "holder")
		if a := one(t.Context(), holder, mine); a.Err != nil {
			t.Fatal(a.Err)
		}
		return mine
	}
	if a := one(t.Context(), holder, then(tenure.Release, take())); a.Err != nil || a.Awaited {
		t.Errorf("nobody waits: %v, awaited %t", a.Err, a.Awaited)
	}
	mine := take()
	waits(t, server, key, "other").refused()
	if a := one(t.Context(), holder, then(tenure.Release, mine)); a.Err != nil || !a.Awaited {
		t.Errorf("another waits: %v, awaited %t", a.Err, a.Awaited)
	}
}
