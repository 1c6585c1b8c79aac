package redis

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestAReplicaDecidesNothing asks a replica that has lost its primary. It lacks
// the newest changes, so it must not answer.
func TestAReplicaDecidesNothing(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.RedisPair(t)
	ctx := t.Context()
	near := New(dial(t, primary), nil)
	far := New(dialWith(t, replica, &goredis.Options{MaxRetries: -1}), nil)
	over := claim("replica/released", "ann")
	for _, req := range []tenure.Request{claim("replica/held", "ann"), over} {
		if a := one(ctx, near, req); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	testenv.Eventually(t, "the replica has both", func() error {
		rec, err := far.Get(ctx, over.Key)
		if err == nil && rec.IsZero() {
			err = errors.New("not yet")
		}
		return err
	})
	if _, err := replica.Ask("REPLICAOF", "127.0.0.1", "1"); err != nil { // from now on it gets no changes
		t.Fatal(err)
	}
	mine := claim("replica/new", "ann")
	for _, req := range []tenure.Request{mine, then(tenure.Release, over)} {
		if a := one(ctx, near, req); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for name, req := range map[string]tenure.Request{
		"renewing what it has not heard of": then(tenure.Renew, mine), "releasing it": then(tenure.Release, mine), "renewing what it takes for held": then(tenure.Renew, over),
		"taking what it takes for held": claim(over.Key, "bob"), "taking what is held": claim("replica/held", "bob"), "taking what it has not heard of": claim(mine.Key, "bob"),
	} {
		a := one(ctx, far, req)
		if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "connect to its primary") {
			t.Errorf("%s: %v, want unknown, and what to do", name, a.Err)
		}
	}
}

// TestACancelledCallEndsWhileTheServerHangs uses a client with a read timeout
// of an hour. It observes deadlines only.
func TestACancelledCallEndsWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	st := New(dialWith(t, server, &goredis.Options{ReadTimeout: time.Hour, ContextTimeoutEnabled: true}), nil)
	for range 3 {
		warm(t, st) // so that the caller makes the call itself
	}
	if st.slow.Load() {
		t.Log("the server has not been prompt; the call is left behind then, which is checked elsewhere")
	}
	server.Pause(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	mine := claim("hang/cancelled", "ann")
	if a := one(ctx, st, mine); !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.Canceled) {
		t.Errorf("cancelled while the server hangs: %v", a.Err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if a := one(ctx, st, mine); !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("its time is over while the server hangs: %v", a.Err)
	}
	server.Resume()
	if a := storetest.Resolve(t.Context(), st, mine); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("asked again: %v in term %d, want the one grant", a.Err, a.Record.Terms)
	}
}

// TestAFullServerIsUnknown checks that a full server takes no changes until
// there is room, and leaves nothing half done.
func TestAFullServerIsUnknown(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	client, ctx := dial(t, server), t.Context()
	st := New(client, nil)
	mine, other := claim("full/mine", "ann"), claim("full/other", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	client.ConfigSet(ctx, "maxmemory", "1")
	for i, a := range st.Apply(ctx, []tenure.Request{other, then(tenure.Renew, mine), claim(mine.Key, "bob")}) {
		if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "raise maxmemory") {
			t.Errorf("request %d to a full server: %v, want unknown, and what to do", i, a.Err)
		}
	}
	client.ConfigSet(ctx, "maxmemory", "0")
	if a := one(ctx, st, other); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("when there is room: %v in term %d", a.Err, a.Record.Terms)
	}
	if a := one(ctx, st, then(tenure.Renew, mine)); a.Err != nil {
		t.Errorf("renewing when there is room: %v", a.Err)
	}
}

// TestANamespaceThatMovesKeepsItsLeases asks while a cluster moves a namespace.
// Answers are right or unknown. Afterwards the client finds the new node by
// itself.
func TestANamespaceThatMovesKeepsItsLeases(t *testing.T) {
	t.Parallel()
	nodes := testenv.RedisCluster(t, 2)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{nodes[0].Addr, nodes[1].Addr}, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	st, ctx := New(client, nil), t.Context()
	mine := claim("moving/key", "ann")
	first := one(ctx, st, mine)
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	record, index := st.names.record(mine.Key), st.names.index("moving")
	slot := strconv.FormatInt(client.ClusterKeySlot(ctx, record).Val(), 10)
	from, to := nodes[0], nodes[1]
	if owner, err := client.MasterForKey(ctx, record); err != nil {
		t.Fatal(err)
	} else if owner.Options().Addr == to.Addr {
		from, to = to, from
	}
	ask := func(node *testenv.RedisServer, args ...string) string {
		t.Helper()
		said, err := node.Ask(args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return said
	}
	host, port, _ := strings.Cut(to.Addr, ":")
	fromID, toID := ask(from, "CLUSTER", "MYID"), ask(to, "CLUSTER", "MYID")
	ask(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	ask(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	renewed := func(when string, sure bool) {
		t.Helper()
		a := one(ctx, st, then(tenure.Renew, mine))
		if a.Err == nil && a.Record.Token == first.Record.Token || !sure && errors.Is(a.Err, store.ErrUnknown) {
			return
		}
		t.Errorf("%s: %v, token %d", when, a.Err, a.Record.Token)
	}
	renewed("when the move has begun", true)
	ask(from, "MIGRATE", host, port, record, "0", "5000")
	renewed("between two nodes", false)
	ask(from, "MIGRATE", host, port, index, "0", "5000")
	renewed("all keys have moved", true)
	for _, node := range []*testenv.RedisServer{to, from} {
		ask(node, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	renewed("after the move", true)
	ask(to, "CLUSTER", "DELSLOTS", slot) // no node has it: the cluster is down
	if a := one(ctx, st, then(tenure.Renew, mine)); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("the cluster is down: %v, want unknown", a.Err)
	}
}

// TestAUserWithoutChannelsHasLeasesAllTheSame checks that such a user gets
// leases, and that the errors of Watch and Acts say what to do.
func TestAUserWithoutChannelsHasLeasesAllTheSame(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	if _, err := server.Ask("ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", "resetchannels"); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	st := New(dialWith(t, server, &goredis.Options{Username: "weak", Password: "secret"}), nil)
	t.Cleanup(func() { st.Close() })
	one, two := claim("weak/one", "ann"), claim("weak/two", "ann")
	for _, requests := range [][]tenure.Request{
		{one},
		{then(tenure.Release, one), two},
		{claim(one.Key, "bob"), then(tenure.Release, two)},
		{seize(one.Key), seize(two.Key)},
	} {
		for i, a := range st.Apply(ctx, requests) {
			if a.Err != nil {
				t.Errorf("%s of %s: %v", requests[i].Verb, requests[i].Key, a.Err)
			}
		}
	}
	_, watchErr := st.Watch(ctx, one.Key)
	_, actsErr := st.Acts(ctx)
	for _, err := range []error{watchErr, actsErr} {
		if !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "channels that begin") {
			t.Errorf("watching: %v, want unknown, and what to do", err)
		}
	}
}

// TestARecordThatMayNotBeReadIsNotDamaged checks the error. An operator who
// took the record for damaged and deleted it would lose a lease.
func TestARecordThatMayNotBeReadIsNotDamaged(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.RedisPair(t)
	if _, err := primary.Ask("ACL", "SETUSER", "weak", "on", ">secret", "~*", "&*", "+@all", "-hmget"); err != nil {
		t.Fatal(err)
	}
	if _, err := replica.Ask("CONFIG", "SET", "replica-serve-stale-data", "no"); err != nil {
		t.Fatal(err)
	}
	if _, err := replica.Ask("REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		client *goredis.Client
		advice string
	}{
		"a user who may not":            {dialWith(t, primary, &goredis.Options{Username: "weak", Password: "secret"}), "this user needs the commands"},
		"a replica without its primary": {dialWith(t, replica, &goredis.Options{MaxRetries: -1}), "connect to the primary"},
	} {
		st := New(c.client, nil)
		err := one(t.Context(), st, claim("unread/held", "ann")).Err
		_, getErr := st.Get(t.Context(), "unread/held")
		for _, err := range []error{err, getErr} {
			if !errors.Is(err, store.ErrUnknown) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.advice) {
				t.Errorf("%s: %v, want unknown and %q", name, err, c.advice)
			}
		}
	}
}

// TestARingIsRefused checks that a Ring cannot carry a store. When a shard does
// not answer for a moment, another would grant the key a second time.
func TestARingIsRefused(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"one": server.Addr}})
	t.Cleanup(func() { ring.Close() })
	st := New(ring, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	_, watchErr := st.Watch(t.Context(), "ring/key")
	_, actsErr := st.Acts(t.Context())
	for _, err := range []error{one(t.Context(), st, claim("ring/key", "ann")).Err, watchErr, actsErr} {
		if !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "Sentinel") {
			t.Errorf("%v, want unknown, and what to do", err)
		}
	}
	if _, err := OpenGuard(ring, "ring", nil); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a guard: %v, want invalid", err)
	}
}

// TestARefusedWatchIsToldAlsoAfterAnOutage checks that a user without channels
// gets the error even if the server was down at the first watch.
func TestARefusedWatchIsToldAlsoAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	if _, err := server.Ask("ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", "resetchannels"); err != nil {
		t.Fatal(err)
	}
	var out atomic.Bool
	st := New(dialWith(t, server, &goredis.Options{Username: "weak", Password: "secret", Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if out.Load() {
			return nil, errors.New("nobody is there")
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}), nil)
	t.Cleanup(func() { st.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	out.Store(true)
	if _, err := st.Watch(ctx, "weak/out"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("during the outage: %v, want unknown", err)
	}
	out.Store(false)
	if _, err := st.Watch(ctx, "weak/out"); !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "channels that begin") {
		t.Errorf("after it: %v, want unknown, and what to do", err)
	}
}
