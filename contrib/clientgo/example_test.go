package clientgo_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/contrib/clientgo"
)

// client-go elects the leader, without a cluster. The leader's writes carry the
// stamp of its lease.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	work := func(_ context.Context, lease *croft.Lease) {
		fmt.Println("leading under", lease.Stamp().Key)
		stop() // here, the program ends
	}
	st := mem.New(nil) // in earnest, a store that the candidates share
	podName := "web-7d9f"
	lock := clientgo.NewLock(st, "controllers/web", podName, nil)
	defer lock.Close()

	config := leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
	}
	config.Callbacks.OnStartedLeading = lock.Leading(work)
	config.Callbacks.OnStoppedLeading = func() {}
	leaderelection.RunOrDie(ctx, config)
	// Output: leading under controllers/web
}
