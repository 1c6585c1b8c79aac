package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/backend/etcd"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// publish makes a configuration current if the stamp's owner is still the
// newest. The file and the pointer to it change together or not at all.
func publish(ctx context.Context, client *clientv3.Client, stamp fence.Stamp, name, content string) error {
	g, err := etcd.OpenGuard(client, "config/current", nil)
	if err != nil {
		return err
	}
	_, err = g.Do(ctx, stamp, clientv3.OpPut("config/"+name, content), clientv3.OpPut("config/current", name))
	return err
}

// roll lets an owner publish, then its successor, and then the first owner
// again, which was presumed dead. Stamps come from leases: lease.Stamp(), or
// CROFT_STAMP inside croft run.
func roll(ctx context.Context, client *clientv3.Client, out io.Writer) {
	older := fence.Stamp{Key: "jobs/config", Token: 41, Grant: "0123456789abcdef0123456789abcdef"}
	newer := fence.Stamp{Key: "jobs/config", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
	fmt.Fprintln(out, "older:", publish(ctx, client, older, "v1", "slow"))
	fmt.Fprintln(out, "newer:", publish(ctx, client, newer, "v2", "fast"))
	err := publish(ctx, client, older, "v3", "slower")
	fmt.Fprintln(out, "older is stale:", errors.Is(err, fence.ErrStale))
	resp, err := client.Get(ctx, "config/current")
	if err == nil && len(resp.Kvs) == 1 {
		fmt.Fprintf(out, "current is %s\n", resp.Kvs[0].Value)
	}
}

const rolled = `older: <nil>
newer: <nil>
older is stale: true
current is v2
`

// The check of the stamp and the writer's operations are one transaction. An
// owner that has been replaced changes nothing, not even half of it. It prints
// what TestTheExample expects.
func ExampleGuard_Do() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	roll(context.Background(), client, os.Stdout)
}

// TestTheExample runs the example on a server of its own.
func TestTheExample(t *testing.T) {
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{Endpoints: testenv.EtcdAlone(t, "unsafe-no-fsync: true").Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var out strings.Builder
	roll(t.Context(), client, &out)
	if out.String() != rolled {
		t.Errorf("the example printed:\n%s\nwant:\n%s", &out, rolled)
	}
}
