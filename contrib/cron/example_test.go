package cron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	croftcron "github.com/croft-dev/croft/contrib/cron"
)

// The job succeeds once a day, on however many machines this program runs.
func Example() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), nil) // in earnest, a store that the machines share
	defer client.Close()

	work := func(_ context.Context, lease *croft.Lease) error {
		fmt.Println("publishing under", lease.Stamp().Key)
		return nil
	}
	c := cron.New()
	daily := &croftcron.Options{Lease: &croft.LeaseOptions{Every: 24 * time.Hour}}
	id, err := c.AddJob("0 6 * * *", croftcron.Job(ctx, client, "daily", daily, work))
	if err != nil {
		panic(err)
	}
	c.Start()
	defer c.Stop()
	c.Entry(id).Job.Run() // as cron does at six
	// Output: publishing under daily
}
