package current_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/guard/current"
)

// A boundary follows the store of the leases. Gates of package
// boundary/httpfence take a Follower as Options.Current.
func ExampleFollow() {
	ctx := context.Background()
	st := mem.New(nil)
	client := croft.New(st, &croft.Options{Owner: "worker@one"})
	defer client.Close()
	follower, err := current.Follow(st, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer follower.Close()

	lease, err := client.Acquire(ctx, "jobs/orders", &croft.LeaseOptions{TTL: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	invented := lease.Stamp()
	invented.Token++
	fmt.Println("the owner:", follower.Check(ctx, lease.Stamp()))
	fmt.Println("an invented stamp is refused:", errors.Is(follower.Check(ctx, invented), croft.ErrNotOwned))
	// Output:
	// the owner: <nil>
	// an invented stamp is refused: true
}
