package gocron_test

import (
	"context"
	"fmt"
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
	locker := croftgocron.NewLocker(client, &croft.LeaseOptions{Every: time.Hour})
	task := locker.Task("reports/hourly", func(_ context.Context, lease *croft.Lease) error {
		fmt.Println("publishing under", lease.Stamp().Key)
		close(done)
		return nil
	})
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Shutdown() }()
	_, err = s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(task), gocron.WithName("reports/hourly"),
		gocron.WithStartAt(gocron.WithStartImmediately()))
	if err != nil {
		panic(err)
	}
	s.Start()
	<-done
	// Output: publishing under reports/hourly
}
