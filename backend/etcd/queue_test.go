package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// waiter is a client that waits for a key as Croft's does: it asks, and asks
// again when it is woken.
type waiter struct {
	st   *Store
	wake <-chan struct{}
	mine tenure.Request
}

func newWaiter(t *testing.T, st *Store, key string, n int) *waiter {
	t.Helper()
	wake, err := st.Watch(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &waiter{st: st, wake: wake, mine: claim(key, fmt.Sprintf("waiter %d", n))}
}

// wait takes the key when it is its turn. asked says that it was refused
// before. It uses a secret until that is used up.
func (w *waiter) wait(ctx context.Context, asked bool) error {
	if !asked {
		w.mine.Secret = tenure.NewSecret()
	}
	for {
		if asked {
			select {
			case <-w.wake:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		a := resolve(ctx, w.st, w.mine)
		switch {
		case errors.Is(a.Err, tenure.ErrHeld):
			asked = true
		case errors.Is(a.Err, tenure.ErrNotOwned):
			w.mine.Secret, asked = tenure.NewSecret(), false
		default:
			return a.Err
		}
	}
}

// queued waits until n stores are in the queue of a key.
func queued(t *testing.T, st *Store, key string, n int64) {
	t.Helper()
	testenv.Eventually(t, "all are in the queue", func() error {
		resp, err := st.client.Get(t.Context(), st.names.queue(key), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && resp.Count < n {
			err = fmt.Errorf("%d of %d", resp.Count, n)
		}
		return err
	})
}

// TestAHandOffCostsTheSameHoweverManyWait: a release names one waiting store,
// and only that store asks. All get their turn.
func TestAHandOffCostsTheSameHoweverManyWait(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key, clients, rounds = "queue/many", 16, 3
	holder := open(t, dial(t, c), c.Prefix())
	mine := claim(key, "holder")
	must(t, holder, mine)
	client, w := wired(t, c)
	waiters := make([]*waiter, clients)
	for n := range waiters {
		waiters[n] = newWaiter(t, open(t, client, c.Prefix()), key, n)
	}
	queued(t, holder, key, clients)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	turns := make([]int, clients)
	var refused sync.WaitGroup
	var all sync.WaitGroup
	refused.Add(clients)
	before, began := w.events.Load(), time.Now()
	calls := w.during(func() {
		for n, who := range waiters {
			all.Go(func() {
				if a := resolve(ctx, who.st, who.mine); !errors.Is(a.Err, tenure.ErrHeld) {
					t.Errorf("the key is held: %v", a.Err)
				}
				refused.Done()
				refused.Wait()
				for round := range rounds {
					if err := who.wait(ctx, round == 0); err != nil {
						t.Errorf("waiter %d: %v", n, err)
						return
					}
					turns[n]++
					time.Sleep(2 * time.Millisecond) // its work
					a := resolve(ctx, who.st, then(tenure.Release, who.mine))
					if a.Err != nil {
						t.Errorf("release: %v", a.Err)
					}
					if a.Awaited {
						time.Sleep(5 * time.Millisecond) // as Croft's client does
					}
				}
			})
		}
		refused.Wait()
		must(t, holder, then(tenure.Release, mine))
		all.Wait()
	})
	for n := range turns {
		if turns[n] != rounds {
			t.Errorf("waiter %d had %d turns", n, turns[n])
		}
	}
	per := float64(calls["Txn"]+calls["Put"]+calls["Range"]+calls["DeleteRange"]) / (clients * rounds)
	t.Logf("%.1f calls for a hand-off among %d clients: %v", per, clients, calls)
	// A hand-off is about four calls, and as many events. If all were woken,
	// there would be several for each waiting store. On a slow machine waiting
	// stores also poll.
	most := clients/2*clients*rounds + int(4*clients*time.Since(began).Seconds())
	if n := calls["Txn"] + calls["Put"] + calls["Range"] + calls["DeleteRange"]; n > most {
		t.Errorf("%d hand-offs among %d clients took %d calls", clients*rounds, clients, n)
	}
	if n := int(w.events.Load() - before); n > most {
		t.Errorf("at %d hand-offs, %d clients were told of %d changes", clients*rounds, clients, n)
	}
}

// TestAnOfferToADeadStoreStallsNobody: it died or hangs. The others get the key
// a moment later.
func TestAnOfferToADeadStoreStallsNobody(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "queue/dead"
	holder, dead, next := open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := claim(key, "holder")
	must(t, holder, mine)
	newWaiter(t, dead, key, 1) // and never listens
	queued(t, holder, key, 1)
	alive := newWaiter(t, next, key, 2)
	queued(t, holder, key, 2)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	got := make(chan error, 1)
	asked := make(chan struct{})
	go func() {
		a := resolve(ctx, next, alive.mine)
		close(asked)
		if !errors.Is(a.Err, tenure.ErrHeld) {
			got <- fmt.Errorf("the key is held: %w", a.Err)
			return
		}
		got <- alive.wait(ctx, true)
	}()
	<-asked
	began := time.Now()
	must(t, holder, then(tenure.Release, mine))
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	t.Logf("%s after the release", time.Since(began))
	rec, err := holder.Get(t.Context(), key)
	if err != nil || rec.Owner != alive.mine.Owner {
		t.Errorf("the key is %q's, %v", rec.Owner, err)
	}
}

// TestStoresThatOnlyWatchStallNobody: the first two in the queue are told of a
// freed key, and do not want it. The third gets it.
func TestStoresThatOnlyWatchStallNobody(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "queue/watched"
	holder := open(t, dial(t, c), c.Prefix())
	mine := claim(key, "holder")
	must(t, holder, mine)
	for n := range int64(2) {
		newWaiter(t, open(t, dial(t, c), c.Prefix()), key, int(n))
		queued(t, holder, key, n+1)
	}
	third := newWaiter(t, open(t, dial(t, c), c.Prefix()), key, 3)
	queued(t, holder, key, 3)
	if a := resolve(t.Context(), third.st, third.mine); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Fatalf("the key is held: %v", a.Err)
	}
	must(t, holder, then(tenure.Release, mine))
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := third.wait(ctx, true); err != nil {
		t.Error(err)
	}
}

// TestNoQueueEntryIsLeftBehind by a store that no longer waits.
func TestNoQueueEntryIsLeftBehind(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	st := open(t, dial(t, c), c.Prefix())
	must(t, st, claim("queue/left", "ann"))
	ctx, cancel := context.WithCancel(t.Context())
	other := open(t, dial(t, c), c.Prefix())
	wake, err := other.Watch(ctx, "queue/left")
	if err != nil {
		t.Fatal(err)
	}
	queued(t, st, "queue/left", 1)
	cancel()
	for range wake { // until it is closed
	}
	testenv.Eventually(t, "the queue is empty", func() error {
		resp, err := st.client.Get(t.Context(), string(st.names)+"q/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && resp.Count > 0 {
			err = fmt.Errorf("%d are in it", resp.Count)
		}
		return err
	})
}

// TestAnAcquireThatDoesNotWaitBlocksNobody, although its store has waited for
// the key lately.
func TestAnAcquireThatDoesNotWaitBlocksNobody(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "queue/tries"
	holder, tries, waits := open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := claim(key, "holder")
	must(t, holder, mine)
	ctx, cancel := context.WithCancel(t.Context())
	wake, err := tries.Watch(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	queued(t, holder, key, 1)
	cancel()
	for range wake { // until it is closed
	}
	emptyQueue := func() error {
		resp, err := holder.client.Get(t.Context(), holder.names.queue(key), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && resp.Count > 0 {
			err = fmt.Errorf("%d are in it", resp.Count)
		}
		return err
	}
	testenv.Eventually(t, "the queue is empty", emptyQueue)
	try := func() {
		if a := resolve(t.Context(), tries, claim(key, "tries")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatalf("the key is held: %v", a.Err)
		}
	}
	try()
	testenv.Eventually(t, "the queue is empty again", emptyQueue)

	try()
	who := newWaiter(t, waits, key, 1)
	got := make(chan error, 1)
	go func() { got <- who.wait(t.Context(), false) }()
	queued(t, holder, key, 1)
	must(t, holder, then(tenure.Release, mine))
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestALostAnswerToAReleaseLeavesOneTruth: a waiting store is offered the key,
// and takes it. Then the release is repeated.
func TestALostAnswerToAReleaseLeavesOneTruth(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "queue/lost"
	client, w := wired(t, c)
	holder, mine := open(t, client, c.Prefix()), longClaim(key, "holder")
	who := newWaiter(t, open(t, dial(t, c), c.Prefix()), key, 1)
	queued(t, holder, key, 1)
	newWaiter(t, holder, key, 2) // so that its grant reads the queue
	queued(t, holder, key, 2)
	must(t, holder, mine)
	w.lose(true)
	if a := one(t.Context(), holder, then(tenure.Release, mine)); !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("nobody has answered: %v", a.Err)
	}
	w.lose(false)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := who.wait(ctx, false); err != nil {
		t.Fatal(err)
	}
	must(t, holder, then(tenure.Release, mine))
	if rec, err := holder.Get(t.Context(), key); err != nil || rec.Owner != who.mine.Owner || rec.State != tenure.Held {
		t.Errorf("it is %s of %s, %v", rec.State, rec.Owner, err)
	}
	must(t, who.st, then(tenure.Release, who.mine))
}

// TestAWaiterInTheHoldersStoreIsNotForgotten: others wait in the same store and
// in another one, and all get their turn.
func TestAWaiterInTheHoldersStoreIsNotForgotten(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const key = "queue/mate"
	st, other := open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())
	mine := claim(key, "holder")
	must(t, st, mine)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	var all sync.WaitGroup
	for n, in := range []*Store{st, st, other, other} {
		who := newWaiter(t, in, key, n)
		all.Go(func() {
			for range 3 {
				if err := who.wait(ctx, false); err != nil {
					t.Errorf("waiter %d: %v", n, err)
					return
				}
				must(t, in, then(tenure.Release, who.mine))
			}
		})
	}
	queued(t, st, key, 2)
	must(t, st, then(tenure.Release, mine))
	all.Wait()
}

// TestABatchOffersAllItsKeys to the stores that wait for them, as many as fit
// into one transaction.
func TestABatchOffersAllItsKeys(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	stores := []*Store{open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix()), open(t, dial(t, c), c.Prefix())}
	var mine []tenure.Request
	var wakes [3][]<-chan struct{}
	for n := range maxGroups {
		mine = append(mine, longClaim(fmt.Sprintf("queue/batch/%d", n), "ann"))
	}
	must(t, stores[0], mine...)
	for n, st := range stores[1:] {
		for _, req := range mine {
			wakes[n+1] = append(wakes[n+1], newWaiter(t, st, req.Key, n).wake)
		}
		for _, req := range mine {
			queued(t, st, req.Key, int64(n+1))
		}
	}
	for n, st := range stores {
		if n > 0 {
			for i := range mine {
				mine[i].Secret = tenure.NewSecret()
			}
			must(t, st, mine...)
		}
		var releases []tenure.Request
		for _, req := range mine {
			releases = append(releases, then(tenure.Release, req))
		}
		for i, a := range must(t, st, releases...) {
			if n < 2 && !a.Awaited {
				t.Errorf("%s is released by store %d, and others wait", mine[i].Key, n)
			}
		}
		if n == 2 {
			return
		}
		for i, wake := range wakes[n+1] {
			select {
			case <-wake:
			case <-time.After(testenv.Patience):
				t.Fatalf("nobody is told of %s, which store %d has released", mine[i].Key, n)
			}
		}
	}
}
