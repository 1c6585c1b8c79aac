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
	"slices"
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

	mu      sync.Mutex
	granted map[string][]*lock // that no task has taken yet, by key
}

// NewLocker makes a locker. o configures its leases, and may be nil.
func NewLocker(client *croft.Client, o *croft.LeaseOptions) *Locker {
	return &Locker{client: client, with: o, granted: map[string][]*lock{}}
}

// Lock acquires the lease on a job's name. gocron skips the run after an error.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.client.Acquire(ctx, key, l.with)
	if err != nil {
		return nil, err
	}
	k := &lock{l, key, lease}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted[key] = append(l.granted[key], k)
	return k, nil
}

// Task makes the function of the job with this name. Its context ends when
// gocron's or the lease does. The function releases the lease when work has
// returned. If work fails, the lease ends as failed, so that a period does not
// count as done. The function returns an error if the release is not confirmed.
//
// Give the job the same name with [gocron.WithName]. Without it, the function
// finds no lease and returns an error. A lease serves one run of one task.
func (l *Locker) Task(name string, work croft.Work) func(context.Context) error {
	return func(ctx context.Context) error {
		k := l.take(name)
		if k == nil {
			return fmt.Errorf("croft: no lease for job %q; give the job this name with gocron.WithName, "+
				"and gocron this locker", name)
		}
		return run(ctx, k.lease, work, true)
	}
}

// take takes the oldest lock on a key that no task has taken, or returns nil.
func (l *Locker) take(key string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.granted[key]) == 0 {
		return nil
	}
	k := l.granted[key][0]
	l.remove(k)
	return k
}

// remove reports whether no task had taken a lock, and takes it. The caller
// holds mu.
func (l *Locker) remove(k *lock) bool {
	i := slices.Index(l.granted[k.key], k)
	if i < 0 {
		return false
	}
	if l.granted[k.key] = slices.Delete(l.granted[k.key], i, i+1); len(l.granted[k.key]) == 0 {
		delete(l.granted, k.key)
	}
	return true
}

type lock struct {
	locker *Locker
	key    string
	lease  *croft.Lease
}

// Unlock releases the lease of a job that [Locker.Task] has not made, also if
// ctx has ended. It does nothing if the lease is over.
//
// A task releases its lease by itself. It may be that of another run, which is
// still under way when gocron unlocks this one.
func (k *lock) Unlock(ctx context.Context) error {
	k.locker.mu.Lock()
	unused := k.locker.remove(k)
	k.locker.mu.Unlock()
	if !unused || k.lease.Err() != nil {
		return nil
	}
	return k.lease.Release(context.WithoutCancel(ctx))
}

// run runs work until it is done or the lease is over. A lost lease is an
// error, even if work returns nil. With ends, it also ends the lease.
func run(ctx context.Context, lease *croft.Lease, work croft.Work, ends bool) (err error) {
	within, stop := croft.Leases{lease}.Within(ctx)
	defer stop()
	succeeded := false
	defer func() {
		if ends && !succeeded { // a panic is a failure, too
			_ = lease.Fail(context.WithoutCancel(ctx))
		}
	}()
	if within.Err() != nil {
		return context.Cause(within)
	}
	err = work(within, lease)
	if lost := lease.Err(); lost != nil && err == nil {
		err = lost
	}
	if succeeded = err == nil; ends && succeeded {
		err = lease.Release(context.WithoutCancel(ctx))
	}
	return err
}
