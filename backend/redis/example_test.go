package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/backend/redis"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// transfer moves money between two accounts if the stamp's owner is still the
// newest. The keys share a {tag}, so they live on one node of a cluster.
func transfer(ctx context.Context, client goredis.UniversalClient, stamp fence.Stamp, amount int) error {
	g, err := redis.OpenGuard(client, "{accounts}:ledger", nil)
	if err != nil {
		return err
	}
	_, err = g.Do(ctx, stamp,
		redis.Command{"DECRBY", "{accounts}:ann", amount},
		redis.Command{"INCRBY", "{accounts}:bob", amount},
		redis.Command{"RPUSH", "{accounts}:ledger", fmt.Sprintf("ann to bob: %d", amount)},
	)
	return err
}

// settle lets an owner write, then its successor, and then the owner again,
// which was presumed dead. Stamps come from leases: lease.Stamp(), or
// CROFT_STAMP inside croft run.
func settle(ctx context.Context, client goredis.UniversalClient, out io.Writer) {
	older := fence.Stamp{Key: "jobs/settle", Token: 41, Grant: "0123456789abcdef0123456789abcdef"}
	newer := fence.Stamp{Key: "jobs/settle", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
	fmt.Fprintln(out, "older:", transfer(ctx, client, older, 10))
	fmt.Fprintln(out, "newer:", transfer(ctx, client, newer, 20))
	err := transfer(ctx, client, older, 30)
	fmt.Fprintln(out, "older is stale:", errors.Is(err, fence.ErrStale))
	fmt.Fprintln(out, "bob has", client.Get(ctx, "{accounts}:bob").Val())
}

const settled = `older: <nil>
newer: <nil>
older is stale: true
bob has 30
`

// The guard checks a writer's stamp and carries out its commands in one step.
// An owner that has been replaced changes nothing at all. It prints what
// TestTheExample expects.
func ExampleGuard_Do() {
	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	defer client.Close()
	settle(context.Background(), client, os.Stdout)
}

// TestTheExample runs the example on a server of its own.
func TestTheExample(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: testenv.RedisAlone(t).Addr})
	defer client.Close()
	var out strings.Builder
	settle(t.Context(), client, &out)
	if out.String() != settled {
		t.Errorf("the example printed:\n%s\nwant:\n%s", &out, settled)
	}
}
