package gocron_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	croftgocron "github.com/croft-dev/croft/contrib/gocron"
)

var (
	_ gocron.Locker  = (*croftgocron.Locker)(nil)
	_ gocron.Elector = (*croftgocron.Elector)(nil)
)

// machine makes a client, as another machine has.
func machine(t *testing.T, st *mem.Store) *croft.Client {
	c := croft.New(st.Open(nil), nil)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// start runs a job once, in a scheduler of its own. It returns a channel with
// the outcome: that of the task, or the error of the lock.
func start(t *testing.T, distributed gocron.SchedulerOption, name string, task any) <-chan error {
	t.Helper()
	s, err := gocron.NewScheduler(distributed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	outcome := make(chan error, 1)
	tell := func(_ uuid.UUID, _ string, err error) { outcome <- err }
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(task), gocron.WithName(name),
		gocron.WithEventListeners(gocron.AfterLockError(tell), gocron.AfterJobRunsWithError(tell),
			gocron.AfterJobRuns(func(uuid.UUID, string) { outcome <- nil })))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	return outcome
}

func locking(l *croftgocron.Locker) gocron.SchedulerOption { return gocron.WithDistributedLocker(l) }

// TestOneSchedulerRunsTheJob: while one scheduler runs the job, another skips
// it. A failed run does not count for the period, and a success does.
func TestOneSchedulerRunsTheJob(t *testing.T) {
	st, daily := mem.New(nil), &croft.LeaseOptions{Every: 24 * time.Hour, WaitFor: time.Hour}
	first, second := croftgocron.NewLocker(machine(t, st), daily), croftgocron.NewLocker(machine(t, st), daily)
	impatient := croftgocron.NewLocker(machine(t, st), &croft.LeaseOptions{Every: 24 * time.Hour})
	begun, finish := make(chan bool), make(chan error)
	work := func(context.Context, *croft.Lease) error {
		begun <- true
		return <-finish
	}
	one := start(t, locking(first), "daily", first.Task("daily", work))
	<-begun
	if err := <-start(t, locking(impatient), "daily", impatient.Task("daily", work)); !errors.Is(err, croft.ErrHeld) {
		t.Errorf("while the other ran: %v", err)
	}
	fails := errors.New("no input")
	finish <- fails
	if err := <-one; !errors.Is(err, fails) {
		t.Errorf("the failed run ended with %v", err)
	}
	two := start(t, locking(second), "daily", second.Task("daily", work))
	<-begun // it waits for the failed one to be released
	finish <- nil
	if err := <-two; err != nil {
		t.Errorf("the second run ended with %v", err)
	}
	var held *croft.HeldError
	if err := <-start(t, locking(first), "daily", first.Task("daily", work)); !errors.As(err, &held) ||
		held.Why != croft.WhyPeriod {
		t.Errorf("after a success: %v", err)
	}
}

// TestALostLeaseEndsTheTasksContext: the replaced task is told, and the file
// refuses its write.
func TestALostLeaseEndsTheTasksContext(t *testing.T) {
	st := mem.New(nil)
	target, err := file.Open(t.TempDir()+"/out", nil)
	if err != nil {
		t.Fatal(err)
	}
	locker := croftgocron.NewLocker(machine(t, st), nil)
	begun, replaced, wrote := make(chan bool), make(chan bool), make(chan error, 1)
	outcome := start(t, locking(locker), "daily", locker.Task("daily", func(ctx context.Context, lease *croft.Lease) error {
		close(begun)
		<-replaced
		_ = lease.Report(ctx, "half way") // so that it hears of it before the next renewal
		<-ctx.Done()
		_, err := target.Write(context.WithoutCancel(ctx), lease.Stamp(), strings.NewReader("stale"))
		wrote <- err
		return nil
	}))
	<-begun
	newer := replace(t, machine(t, st), "daily", target)
	close(replaced)
	if err := <-wrote; !errors.Is(err, croft.ErrStale) {
		t.Errorf("the stale write ended with %v", err)
	}
	if err := <-outcome; !errors.Is(err, croft.ErrLost) {
		t.Errorf("the task ended with %v, not a lost lease", err)
	}
	if err := newer.Err(); err != nil {
		t.Errorf("the unlock of the old owner touched the new one: %v", err)
	}
}

// replace takes a key away from its holder.
func replace(t *testing.T, c *croft.Client, key string, guards ...croft.Guard) *croft.Lease {
	t.Helper()
	if _, err := c.Revoke(t.Context(), key, croft.ByHand{Note: "it hangs"}); err != nil {
		t.Fatal(err)
	}
	lease, err := c.Acquire(t.Context(), key, &croft.LeaseOptions{Guards: guards})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// TestATaskWithoutItsLeaseDoesNotRun: the job has another name than the task,
// or no locker.
func TestATaskWithoutItsLeaseDoesNotRun(t *testing.T) {
	locker := croftgocron.NewLocker(machine(t, mem.New(nil)), nil)
	task := locker.Task("daily", func(context.Context, *croft.Lease) error {
		t.Error("it ran")
		return nil
	})
	if err := <-start(t, locking(locker), "nightly", task); err == nil {
		t.Error("the task succeeded under another name")
	}
	if err := task(t.Context()); err == nil {
		t.Error("the task succeeded without a lock")
	}
}

// TestOnlyTheLeaderRunsJobs: after the leader's lease is lost, its running task
// is told, and it no longer leads.
func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	st := mem.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	elector := croftgocron.NewElector(machine(t, st), "scheduler", nil)
	ended := make(chan error, 1)
	if err := elector.IsLeader(ctx); err == nil {
		t.Error("a candidate leads before it stands")
	}
	go func() { ended <- elector.Run(ctx) }()
	for elector.IsLeader(ctx) != nil && ctx.Err() == nil {
		runtime.Gosched()
	}

	begun, replaced := make(chan bool), make(chan bool)
	outcome := start(t, gocron.WithDistributedElector(elector), "daily", elector.Task(
		func(ctx context.Context, lease *croft.Lease) error {
			close(begun)
			<-replaced
			_ = lease.Report(ctx, "half way")
			<-ctx.Done()
			return nil
		}))
	<-begun
	newer := replace(t, machine(t, st), "scheduler")
	close(replaced)
	if err := <-outcome; !errors.Is(err, croft.ErrLost) {
		t.Errorf("the leader's task ended with %v, not a lost lease", err)
	}
	if err := elector.IsLeader(ctx); err == nil {
		t.Error("the replaced leader still leads")
	}
	if err := elector.Task(nil)(ctx); err == nil {
		t.Error("the replaced leader's task ran")
	}
	if err := newer.Release(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the candidate ended with %v", err)
	}
}

// TestRunsShareNoLease: with slots, two runs of one job are under way. When the
// first has ended, gocron gives its lock back. The second keeps its lease.
func TestRunsShareNoLease(t *testing.T) {
	ctx := t.Context()
	locker := croftgocron.NewLocker(machine(t, mem.New(nil)), &croft.LeaseOptions{Slots: 2})
	begun, finish := make(chan *croft.Lease), make(chan error)
	task := locker.Task("daily", func(_ context.Context, lease *croft.Lease) error {
		begun <- lease
		return <-finish
	})
	var locks []gocron.Lock
	for range 2 { // gocron locks both before the first task begins
		lock, err := locker.Lock(ctx, "daily")
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	outcome := make(chan error)
	var leases []*croft.Lease
	for range locks {
		go func() { outcome <- task(ctx) }()
		select {
		case lease := <-begun:
			leases = append(leases, lease)
		case err := <-outcome:
			t.Fatalf("a run with a lock of its own: %v", err)
		}
	}
	finish <- nil // one of the two ends
	if err := <-outcome; err != nil {
		t.Errorf("the first run ended with %v", err)
	}
	for _, lock := range locks { // whichever lock was the first run's
		if err := lock.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	if (leases[0].Err() == nil) == (leases[1].Err() == nil) {
		t.Errorf("the leases ended with %v and %v, want one alive", leases[0].Err(), leases[1].Err())
	}
	finish <- nil
	if err := <-outcome; err != nil {
		t.Errorf("the second run ended with %v", err)
	}
	for _, lease := range leases {
		if !errors.Is(lease.Err(), croft.ErrLost) {
			t.Errorf("%s is still held", lease.Key())
		}
	}
}
