package gocron_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	croftgocron "github.com/croft-dev/croft/contrib/gocron"
)

// The job succeeds once an hour, on however many machines this program runs.
func ExampleLocker() {
	client := croft.New(mem.New(nil), nil) // in earnest, a store that the machines share
	defer client.Close()

	done := make(chan bool)
	work := func(_ context.Context, lease *croft.Lease) error {
		fmt.Println("publishing under", lease.Stamp().Key)
		close(done)
		return nil
	}
	hourly := gocron.DurationJob(time.Hour)
	locker := croftgocron.NewLocker(client, &croft.LeaseOptions{Every: time.Hour})
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Shutdown() }()
	job, err := s.NewJob(hourly, gocron.NewTask(locker.Task("hourly", work)), gocron.WithName("hourly"))
	if err != nil {
		panic(err)
	}
	s.Start()
	if err := job.RunNow(); err != nil { // instead of in an hour
		panic(err)
	}
	<-done
	// Output: publishing under hourly
}

// Only the elected scheduler runs jobs, on however many machines this program
// runs.
func ExampleElector() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := croft.New(mem.New(nil), nil) // in earnest, a store that the machines share
	defer client.Close()

	done := make(chan bool)
	var once sync.Once // the job runs again and again
	work := func(_ context.Context, lease *croft.Lease) error {
		once.Do(func() {
			fmt.Println("leading under", lease.Stamp().Key)
			close(done)
		})
		return nil
	}
	elector := croftgocron.NewElector(client, "scheduler", nil)
	ended := make(chan error, 1)
	go func() { ended <- elector.Run(ctx) }()
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		panic(err)
	}
	if _, err := s.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(elector.Task(work))); err != nil {
		panic(err)
	}
	s.Start()
	<-done
	if err := s.Shutdown(); err != nil { // before the term ends
		panic(err)
	}
	stop()
	if err := <-ended; err != nil {
		panic(err)
	}
	// Output: leading under scheduler
}
