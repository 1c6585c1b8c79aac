// Package clientgo lets client-go's leader election use a lease store of Croft,
// instead of a Lease object of a Kubernetes cluster.
//
// [Lock] is a resourcelock.Interface, as leaderelection.LeaderElectionConfig
// and controller-runtime take it. If you are free to choose, call
// [croft.Client.Lead] instead: it needs no second clock.
//
// # Promises
//
//   - Two candidates never both win. Winning is a grant of the store, which is
//     one atomic step. The lock stores no other record: Get derives the
//     election record from the grant.
//   - The store's clock decides when a leader has lapsed. client-go's elector
//     only decides when to ask. The store refuses an elector that asks too
//     early.
//   - An Update that returns nil has moved the store's deadline to a full
//     LeaseDuration from then.
//   - A lease that is lost stays lost. The lock refuses every Update until the
//     elector has stopped leading. So no elector goes on with a new token
//     while its work still uses the old one.
//   - If the elector hangs or ends without release, the lease lapses within
//     two LeaseDurations. If the process dies, within one.
//
// # Limits
//
//   - client-go's elector does not stop at once. After a loss it goes on for up
//     to RenewDeadline before it ends the context of OnStartedLeading. It also
//     trusts a clock that stops while the machine sleeps. Wrap the work with
//     [Lock.Leading]: its context ends with the lease, in time.
//   - client-go has no fencing. Let every write that matters carry the stamp of
//     the lease that Leading passes on, or of [Lock.Lease].
//   - The times that the elector writes are not kept: the record has the
//     store's. Coordinated leader election (Strategy, PreferredHolder) does not
//     work. RecordEvent records nothing in Kubernetes.
//
// # States
//
// The lock starts no goroutine: its client renews the lease. A lock has no
// lease, a lease that is alive, or a lost one. Only the event with which an
// elector records that it has stopped lets a lost lease go. A mutex protects
// the lease.
package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/store"
)

// stopped is the event that an elector records when it no longer leads.
const stopped = "stopped leading"

// Options configure a [Lock]. A nil *Options and the zero Options are the
// defaults.
type Options struct {
	// Client configures the lock's client. Its Owner is not used.
	Client croft.Options
	// Guards are the resources that the leader writes to. The fence is raised
	// at each of them before the elector knows that it leads. Default: none.
	Guards []croft.Guard
}

// Lock is a resourcelock.Interface for one elector. Its methods are safe for
// concurrent use.
type Lock struct {
	st            store.Store
	client        *croft.Client
	key, identity string
	guards        []croft.Guard

	mu    sync.Mutex
	lease *croft.Lease // the present term, or a lost one; nil before
}

var _ resourcelock.Interface = (*Lock)(nil)

// NewLock makes a lock on key. identity names this candidate, and differs from
// that of every other. The store remains the caller's: close it after the lock.
func NewLock(st store.Store, key, identity string, o *Options) *Lock {
	if o == nil {
		o = &Options{}
	}
	with := o.Client
	with.Owner = identity
	return &Lock{st: st, client: croft.New(st, &with), key: key, identity: identity, guards: o.Guards}
}

// Close ends the lock's client. A lease that it still has lapses.
func (l *Lock) Close() error { return l.client.Close() }

// Identity returns the candidate's name.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the key.
func (l *Lock) Describe() string { return l.key }

// Lease returns the lease of the present term, or nil if this candidate does
// not lead.
func (l *Lock) Lease() *croft.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || l.lease.Err() != nil {
		return nil
	}
	return l.lease
}

// Leading makes an OnStartedLeading callback. The context of work ends when the
// elector's context or the lease does. Work does not begin if the lease is
// already lost.
func (l *Lock) Leading(work func(context.Context, *croft.Lease)) func(context.Context) {
	return func(ctx context.Context) {
		lease := l.Lease()
		if lease == nil {
			return
		}
		ctx, stop := croft.Leases{lease}.Within(ctx)
		defer stop()
		work(ctx, lease)
	}
}

// Get returns the election record that the key's record amounts to. A key that
// nobody holds has no holder, so that every elector may ask for it at once. A
// term of this candidate that the lock has lost is nobody's, too.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	rec, err := l.st.Get(ctx, l.key)
	if err != nil {
		return nil, nil, err
	}
	if rec.Token == 0 {
		return nil, nil, apierrors.NewNotFound(leases, l.key)
	}
	now, err := l.st.Now(ctx)
	if err != nil {
		return nil, nil, err
	}
	election := &resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: int(rec.TTL / time.Second),
		AcquireTime:          metav1.NewTime(rec.Acquired),
		RenewTime:            metav1.NewTime(rec.Renewed),
		LeaderTransitions:    int(rec.Terms),
	}
	mine := l.Lease()
	lost := rec.Owner == l.identity && (mine == nil || mine.Token() != rec.Token)
	if rec.Alive(now) && !lost {
		election.HolderIdentity = rec.Owner
	}
	// An elector compares these bytes. metav1.Time alone has whole seconds.
	raw, err := json.Marshal(struct {
		*resourcelock.LeaderElectionRecord
		Token   uint64
		Renewed time.Time
	}{election, uint64(rec.Token), rec.Renewed})
	return election, raw, err
}

// Create is Update: the store does not tell a key's first term from others.
func (l *Lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, ler)
}

// Update acquires the key, or renews the lease that the lock has. Without a
// holder in the record it releases the lease.
func (l *Lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ler.HolderIdentity == "":
		return l.release(ctx)
	case ler.HolderIdentity != l.identity:
		return fmt.Errorf("croft: %q cannot make %q the leader of %q", l.identity, ler.HolderIdentity, l.key)
	case l.lease != nil:
		return l.renew(ctx)
	}
	return l.acquire(ctx, time.Duration(ler.LeaseDurationSeconds)*time.Second)
}

func (l *Lock) acquire(ctx context.Context, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("%w LeaseDuration for %q: it must be at least a second", croft.ErrInvalid, l.key)
	}
	// The client renews only while the elector does: see renew.
	lease, err := l.client.Acquire(ctx, l.key, &croft.LeaseOptions{TTL: ttl, StallAfter: ttl, Guards: l.guards})
	if err != nil {
		return l.refused(err)
	}
	l.lease = lease
	return nil
}

// renew moves the store's deadline, because the elector counts from now on. The
// report keeps the client's own renewals going.
func (l *Lock) renew(ctx context.Context) error {
	err := l.lease.Err()
	if err == nil {
		_, err = l.client.Renew(ctx, l.lease.Deed(), false)
	}
	if err == nil {
		err = l.lease.Report(ctx, "leads")
	}
	return l.refused(err)
}

// release gives the key back. A lost lease needs no release: a refusal would
// make the elector ask again and again.
func (l *Lock) release(ctx context.Context) error {
	if l.lease == nil || l.lease.Err() != nil {
		return nil
	}
	err := l.lease.Release(ctx)
	if errors.Is(err, croft.ErrLost) {
		return nil
	}
	return err
}

// RecordEvent makes the lock ready for another term when the elector has
// stopped. It records nothing: the store keeps the history of the key.
func (l *Lock) RecordEvent(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if event == stopped {
		l.lease = nil
	}
}

var leases = schema.GroupResource{Group: "croft", Resource: "leases"}

// refused makes a Conflict of the store's refusals, as client-go expects it.
func (l *Lock) refused(err error) error {
	if errors.Is(err, croft.ErrHeld) || errors.Is(err, croft.ErrLost) || errors.Is(err, croft.ErrNotOwned) {
		return apierrors.NewConflict(leases, l.key, err)
	}
	return err
}
