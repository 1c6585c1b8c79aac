// Package gocron gives gocron a [Locker] and an [Elector] that rest on Croft's
// leases.
//
// gocron calls the locker or elector before a job, and then the job. It does
// not tell the job under which lease it runs. So wrap the job's function with
// the Task method of the locker or the elector. The function then gets the
// lease, and a context that ends when the lease does.
//
// A lease alone does not stop a stale writer. Let every write that matters
// carry [croft.Lease.Stamp].
//
// Neither starts a goroutine. A Locker keeps each grant until the task of that
// name takes it. An Elector has a term while this process leads, protected by
// its mutex. A term that has ended waits for its tasks before the lease is
// released.
package gocron

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/croft-dev/croft"
)

// Locker is a [gocron.Locker]. The key of a job is its name.
//
// Schedulers do not start a job at the very same moment. If the first is done
// before the second begins, both run the job. So set Every in the lease's
// options, for one success per period, or HoldFor. Jobs with different periods
// need lockers of their own: see [gocron.WithDistributedJobLocker].
type Locker struct {
	client *croft.Client
	with   *croft.LeaseOptions
	// granted has the leases that no task has taken yet, by key.
	granted sync.Map
}

// NewLocker makes a locker. o configures its leases, and may be nil.
func NewLocker(client *croft.Client, o *croft.LeaseOptions) *Locker {
	return &Locker{client: client, with: o}
}

// Lock acquires the lease on a job's name. gocron skips the run after an error.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.client.Acquire(ctx, key, l.with)
	if err != nil {
		return nil, err
	}
	l.granted.Store(key, lease)
	return &lock{l, key, lease}, nil
}

// Task makes the function of the job with this name. Its context ends when
// gocron's or the lease does. If work fails, the lease ends as failed, so that
// a period does not count as done.
//
// Give the job the same name with [gocron.WithName]. Without it, the function
// finds no lease and returns an error. A lease serves one run of one task.
func (l *Locker) Task(name string, work croft.Work) func(context.Context) error {
	return func(ctx context.Context) error {
		found, ok := l.granted.LoadAndDelete(name)
		if !ok {
			return fmt.Errorf("croft: no lease for job %q; give the job this name with gocron.WithName, "+
				"and gocron this locker", name)
		}
		return run(ctx, found.(*croft.Lease), work, true)
	}
}

type lock struct {
	locker *Locker
	key    string
	lease  *croft.Lease
}

// Unlock releases the lease, also if ctx has ended. It does nothing if the
// lease is over.
func (k *lock) Unlock(ctx context.Context) error {
	k.locker.granted.CompareAndDelete(k.key, k.lease)
	if k.lease.Err() != nil {
		return nil
	}
	return k.lease.Release(context.WithoutCancel(ctx))
}

// run runs work until it is done or the lease is over. A lost lease is an
// error, even if work returns nil. With fails, a failure ends the lease.
func run(ctx context.Context, lease *croft.Lease, work croft.Work, fails bool) (err error) {
	within, stop := croft.Leases{lease}.Within(ctx)
	defer stop()
	done := false
	defer func() {
		if fails && (!done || err != nil) { // a panic is a failure, too
			_ = lease.Fail(context.WithoutCancel(ctx))
		}
	}()
	if within.Err() != nil {
		return context.Cause(within)
	}
	err = work(within, lease)
	done = true
	if lost := lease.Err(); lost != nil && err == nil {
		err = lost
	}
	return err
}
