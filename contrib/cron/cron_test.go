package cron_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	croftcron "github.com/croft-dev/croft/contrib/cron"
)

// notes is a cron.Logger that keeps the messages.
type notes chan error

func (n notes) Info(msg string, _ ...any)           { n <- errors.New(msg) }
func (n notes) Error(err error, _ string, _ ...any) { n <- err }

// machine makes a client, as another machine has.
func machine(t *testing.T, st *mem.Store) *croft.Client {
	c := croft.New(st.Open(nil), nil)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// atOnce is a schedule that is due once, at once.
type atOnce struct{ asked *bool }

func (a atOnce) Next(now time.Time) time.Time {
	if *a.asked {
		return now.AddDate(1, 0, 0)
	}
	*a.asked = true
	return now
}

// start runs a job in a scheduler of its own, as on another machine.
func start(t *testing.T, job cron.Job) {
	c := cron.New()
	c.Schedule(atOnce{new(bool)}, job)
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
}

// TestOneMachineRunsTheJob: while one machine runs the job, another skips it.
// After a success within the period, it skips it, too.
func TestOneMachineRunsTheJob(t *testing.T) {
	st, log := mem.New(nil), make(notes, 9)
	o := &croftcron.Options{Lease: &croft.LeaseOptions{Every: 24 * time.Hour}, Logger: log}
	begun, finish, done := make(chan bool), make(chan bool), make(chan bool)
	start(t, cron.NewChain(func(job cron.Job) cron.Job {
		return cron.FuncJob(func() { job.Run(); close(done) })
	}).Then(croftcron.Job(t.Context(), machine(t, st), "daily", o, func(context.Context, *croft.Lease) error {
		close(begun)
		<-finish
		return nil
	})))
	<-begun
	never := croftcron.Once(t.Context(), machine(t, st), "daily", o)(cron.FuncJob(func() { t.Error("it ran twice") }))
	start(t, never)
	if err := <-log; err.Error() != "skip" {
		t.Errorf("while the other ran: %v", err)
	}
	close(finish)
	<-done
	start(t, never)
	if err := <-log; err.Error() != "skip" {
		t.Errorf("after its success: %v", err)
	}
}

// TestALostLeaseEndsTheJobsContext: the replaced job is told, and the file
// refuses its write.
func TestALostLeaseEndsTheJobsContext(t *testing.T) {
	st, log := mem.New(nil), make(notes, 9)
	target, err := file.Open(t.TempDir()+"/out", nil)
	if err != nil {
		t.Fatal(err)
	}
	begun, replaced, wrote := make(chan bool), make(chan bool), make(chan error, 1)
	start(t, croftcron.Job(t.Context(), machine(t, st), "daily", &croftcron.Options{Logger: log},
		func(ctx context.Context, lease *croft.Lease) error {
			close(begun)
			<-replaced
			_ = lease.Report(ctx, "half way") // so that it hears of it before the next renewal
			<-ctx.Done()
			_, err := target.Write(context.WithoutCancel(ctx), lease.Stamp(), strings.NewReader("stale"))
			wrote <- err
			return nil
		}))
	<-begun
	second := machine(t, st)
	if _, err := second.Revoke(t.Context(), "daily", croft.ByHand{Note: "it hangs"}); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Acquire(t.Context(), "daily", &croft.LeaseOptions{Guards: []croft.Guard{target}}); err != nil {
		t.Fatal(err)
	}
	close(replaced)
	if err := <-wrote; !errors.Is(err, croft.ErrStale) {
		t.Errorf("the stale write ended with %v", err)
	}
	if err := <-log; !errors.Is(err, croft.ErrLost) {
		t.Errorf("the job ended with %v, not a lost lease", err)
	}
}

// TestNoRunAfterTheEnd: a job does not run after the end of its context.
func TestNoRunAfterTheEnd(t *testing.T) {
	st, log := mem.New(nil), make(notes, 9)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start(t, croftcron.Once(ctx, machine(t, st), "daily", &croftcron.Options{Logger: log})(
		cron.FuncJob(func() { t.Error("it ran") })))
	if err := <-log; !errors.Is(err, context.Canceled) {
		t.Errorf("the run ended with %v", err)
	}
}
