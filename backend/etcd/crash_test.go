package etcd

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/crowd"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
)

var resolve = storetest.Resolve

// TestAKilledLeaderBreaksNoLaw: clients acquire, renew and write while one
// leader after another is killed and restarted. They continue by themselves.
func TestAKilledLeaderBreaksNoLaw(t *testing.T) {
	t.Parallel()
	cluster := testenv.EtcdThree(t, "unsafe-no-fsync: true")
	harness := guardedCrowd(t, dial(t, cluster))
	harness.TTL = 3 * time.Second
	for range 12 {
		st, err := store.Open(t.Context(), cluster.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		harness.Stores = append(harness.Stores, st)
	}
	all := crowd.Gather(t, harness)
	all.GoesOn("the clients work", 10)
	for range 2 {
		leader := cluster.Leader(t)
		leader.Kill()
		all.GoesOn("the clients recover by themselves, without the member that led", 10)
		leader.Restart(t)
	}
	hung := cluster.Leader(t)
	hung.Pause(t) // a leader that hangs: its connections stay open
	all.GoesOn("the clients recover by themselves from a leader that hangs", 10)
	hung.Resume()
	all.GoesOn("the clients go on when it is back", 10)
	all.Judge()
}

// guardedCrowd makes a harness for a crowd that writes guarded values. etcd's
// own history is the log of all writes.
func guardedCrowd(t *testing.T, guarding *clientv3.Client) crowd.Harness {
	t.Helper()
	h := crowd.Harness{Keys: crowd.Keys(6)}
	guards := map[string]*Guard{}
	for _, key := range h.Keys {
		g, err := OpenGuard(guarding, "guarded/"+key, nil)
		if err != nil {
			t.Fatal(err)
		}
		guards[key] = g
	}
	h.Write = func(ctx context.Context, key string, s fence.Stamp) error {
		_, err := guards[key].Do(ctx, s, clientv3.OpPut(guards[key].key, fmt.Sprint(int64(s.Token))))
		return err
	}
	h.Written = func(ctx context.Context, key string) (tokens []fence.Token, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		now, err := guarding.Get(ctx, guards[key].key)
		if err != nil || len(now.Kvs) == 0 {
			return nil, err
		}
		for resp := range guarding.Watch(ctx, guards[key].key, clientv3.WithRev(1)) {
			if err := resp.Err(); err != nil {
				return nil, err
			}
			for _, e := range resp.Events {
				n, err := strconv.ParseInt(string(e.Kv.Value), 10, 64)
				if err != nil {
					return nil, err
				}
				tokens = append(tokens, fence.Token(n))
				if e.Kv.ModRevision == now.Kvs[0].ModRevision {
					return tokens, nil
				}
			}
		}
		return nil, ctx.Err()
	}
	return h
}
