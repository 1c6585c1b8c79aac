package clientgo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/contrib/clientgo"
	"github.com/croft-dev/croft/guard"
)

const key = "controllers/web"

// candidate makes a lock, as another machine has.
func candidate(t *testing.T, st *mem.Store, identity string, guards ...croft.Guard) *clientgo.Lock {
	lock := clientgo.NewLock(st.Open(nil), key, identity, &clientgo.Options{Guards: guards})
	t.Cleanup(func() { _ = lock.Close() })
	return lock
}

// bid is the record that an elector writes.
func bid(l *clientgo.Lock) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), LeaseDurationSeconds: 60}
}

// run runs client-go's elector until ctx ends or it has lost. The TTL is long,
// so that a slow machine loses nothing. A replaced elector asks on until
// RenewDeadline. An elector that stands still for so long loses, too.
func run(ctx context.Context, t *testing.T, lock *clientgo.Lock, lead func(context.Context, *croft.Lease)) <-chan bool {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: time.Hour, RenewDeadline: 2 * time.Second, RetryPeriod: 10 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lock.Leading(lead), OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	return done
}

// TestTwoCandidatesNeverBothWin: both have read that nobody leads, and both
// write. The store grants one of them.
func TestTwoCandidatesNeverBothWin(t *testing.T) {
	st := mem.New(nil)
	a, b := candidate(t, st, "a"), candidate(t, st, "b")
	for _, lock := range []*clientgo.Lock{a, b} {
		if _, _, err := lock.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Fatalf("an unknown key: %v", err)
		}
	}
	outcome := make(chan error)
	for _, lock := range []*clientgo.Lock{a, b} {
		go func() { outcome <- lock.Create(t.Context(), bid(lock)) }()
	}
	one, two := <-outcome, <-outcome
	if one == nil {
		one, two = two, one
	}
	if two != nil || !apierrors.IsConflict(one) {
		t.Errorf("two bids ended with %v and %v", one, two)
	}
	if (a.Lease() == nil) == (b.Lease() == nil) {
		t.Error("not exactly one has a lease")
	}
}

// TestTheStoreDecidesWhoHasLapsed: an elector whose clock is fast asks too
// early, and is refused.
func TestTheStoreDecidesWhoHasLapsed(t *testing.T) {
	st := mem.New(nil)
	a, b := candidate(t, st, "a"), candidate(t, st, "b")
	if err := a.Update(t.Context(), bid(a)); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(t.Context(), bid(b)); !apierrors.IsConflict(err) {
		t.Errorf("a bid before the deadline: %v", err)
	}
	record, before, err := b.Get(t.Context())
	if err != nil || record.HolderIdentity != "a" || record.LeaseDurationSeconds != 60 {
		t.Errorf("b sees %+v, %v", record, err)
	}
	if err := a.Update(t.Context(), bid(a)); err != nil {
		t.Errorf("a's renewal: %v", err)
	}
	if _, after, err := b.Get(t.Context()); err != nil || string(after) == string(before) {
		t.Errorf("b does not see the renewal: %v", err)
	}
	if err := a.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
		t.Errorf("a's release: %v", err)
	}
	if record, _, err := b.Get(t.Context()); err != nil || record.HolderIdentity != "" {
		t.Errorf("after the release b sees %+v, %v", record, err)
	}
	if err := b.Update(t.Context(), bid(b)); err != nil {
		t.Errorf("b's bid after the release: %v", err)
	}
}

// TestALostLeaseStaysLost: client-go's elector is replaced while it leads. Its
// work is told at once, the file refuses its write, and the elector does not
// get the free key before it has stopped. Then it may stand again.
func TestALostLeaseStaysLost(t *testing.T) {
	st := mem.New(nil)
	dir := t.TempDir()
	target, err := file.Open(dir+"/out", nil)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := guard.Allow(dir)
	if err != nil {
		t.Fatal(err)
	}
	a := candidate(t, st, "a", target)
	replaced, begun, wrote := make(chan bool), make(chan *croft.Lease), make(chan error, 1)
	stopped := run(t.Context(), t, a, func(ctx context.Context, lease *croft.Lease) {
		begun <- lease
		<-ctx.Done() // the elector's next update finds out
		<-replaced
		_, err := target.Write(context.WithoutCancel(ctx), lease.Stamp(), strings.NewReader("stale"))
		wrote <- err
	})
	first := <-begun

	operator := croft.New(st.Open(nil), nil)
	defer operator.Close()
	if _, err := operator.Revoke(t.Context(), key, croft.ByHand{Note: "it hangs", Raise: allowed}); err != nil {
		t.Fatal(err)
	}
	newer, err := operator.Acquire(t.Context(), key, &croft.LeaseOptions{Guards: []croft.Guard{target}})
	if err != nil {
		t.Fatal(err)
	}
	close(replaced)
	if err := <-wrote; !errors.Is(err, croft.ErrStale) {
		t.Errorf("the stale write ended with %v", err)
	}
	if err := newer.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-stopped
	if record, err := st.Get(t.Context(), key); err != nil || record.Token != newer.Token() {
		t.Errorf("the elector went on with a new term: %+v, %v", record, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	again := run(ctx, t, a, func(_ context.Context, lease *croft.Lease) { begun <- lease })
	if second := <-begun; second.Token() <= first.Token() {
		t.Error("the second term has no newer token")
	}
	cancel()
	<-again
	if record, err := st.Get(t.Context(), key); err != nil || record.Alive(time.Now()) {
		t.Errorf("ReleaseOnCancel left the key held: %+v, %v", record, err)
	}
}

// TestTheKeyIsReleasedForTheNextLeader: of two electors one leads, and when it
// ends, the other does.
func TestTheKeyIsReleasedForTheNextLeader(t *testing.T) {
	st := mem.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leads := make(chan string)
	lead := func(ctx context.Context, lease *croft.Lease) {
		leads <- lease.Record().Owner
		<-ctx.Done()
	}
	run(ctx, t, candidate(t, st, "a"), lead)
	if name := <-leads; name != "a" {
		t.Errorf("%q leads", name)
	}
	run(t.Context(), t, candidate(t, st, "b"), lead)
	cancel()
	if name := <-leads; name != "b" {
		t.Errorf("%q leads after a", name)
	}
}
