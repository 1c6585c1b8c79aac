package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/operator"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// seize takes a key over as an operator does.
func seize(key string) tenure.Request {
	req := claim(key, "op")
	req.Verb, req.Actor, req.Note = tenure.Takeover, "op", "test"
	return req
}

// toldOf waits for the next key on a channel, which must be this one.
func toldOf(t *testing.T, keys <-chan string, key string) {
	t.Helper()
	select {
	case told, open := <-keys:
		if !open || told != key {
			t.Fatalf("told of %.100q, open %t; want %q", told, open, key)
		}
	case <-time.After(testenv.Patience):
		t.Fatalf("nothing was told; want %q", key)
	}
}

// ended waits until a channel of keys is closed.
func ended(t *testing.T, keys <-chan string) {
	t.Helper()
	late := time.After(testenv.Patience)
	for {
		select {
		case _, open := <-keys:
			if !open {
				return
			}
		case <-late:
			t.Fatal("the channel is still open")
		}
	}
}

// listens opens a store on a server and listens for operators' acts.
func listens(t *testing.T, server *testenv.RedisServer) (*Store, <-chan string) {
	t.Helper()
	st := New(dial(t, server), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	keys, err := st.Acts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st, keys
}

// TestAHolderLearnsOfATakeoverAtOnce checks that the holder need not wait for
// its next renewal.
func TestAHolderLearnsOfATakeoverAtOnce(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	open := func() *Store {
		st := New(dial(t, server), &Options{Prefix: server.Prefix()})
		t.Cleanup(func() { st.Close() })
		return st
	}
	operator.TakesOverAtOnce(t, open(), open())
}

// TestListenersOfActsShareOneSubscription checks that the last listener ends
// the subscription.
func TestListenersOfActsShareOneSubscription(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	st := New(dial(t, server), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	st.hub.Kept = time.Millisecond
	name := st.names.acts()
	listening, end := context.WithCancel(ctx)
	defer end()
	var all []<-chan string
	for range 3 {
		keys, err := st.Acts(listening)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, keys)
	}
	if n := client.PubSubNumSub(ctx, name).Val()[name]; n != 1 {
		t.Errorf("%d subscriptions, want one", n)
	}
	if a := one(ctx, st, seize("acts/shared")); a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, keys := range all {
		toldOf(t, keys, "acts/shared")
	}
	end()
	testenv.Eventually(t, "the subscription has ended", func() error {
		if n := client.PubSubNumSub(ctx, name).Val()[name]; n != 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// TestActsAreToldAfterAReconnect checks that a listener hears of acts on the
// same channel after the connection was lost.
func TestActsAreToldAfterAReconnect(t *testing.T) {
	t.Parallel()
	far, near, net := overNetwork(t)
	keys, err := far.Acts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	net.LoseReplies(func() {
		if a := one(t.Context(), near, seize("acts/missed")); a.Err != nil {
			t.Fatal(a.Err)
		}
	})
	testenv.Eventually(t, "an act is told", func() error {
		if a := one(t.Context(), near, seize("acts/later")); a.Err != nil {
			t.Fatal(a.Err)
		}
		select {
		case key, open := <-keys:
			if !open || key != "acts/later" && key != "acts/missed" {
				t.Fatalf("told of %q, open %t", key, open)
			}
			return nil
		case <-time.After(10 * time.Millisecond):
			return errors.New("not yet")
		}
	})
}

// TestActsEndWhenTheServerIsGone checks that a listener's channel is closed,
// and that it can listen again when the server is back.
func TestActsEndWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	st, keys := listens(t, server)
	server.Kill()
	st.listener.check() // as it does every 15 s
	st.listener.check()
	ended(t, keys)
	if _, err := st.Acts(t.Context()); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("while it is gone: %v, want unknown", err)
	}
	server.Restart(t)
	keys, err := st.Acts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a := one(t.Context(), st, seize("acts/back")); a.Err != nil {
		t.Fatal(a.Err)
	}
	toldOf(t, keys, "acts/back")
}

// TestActsAreToldAcrossACluster checks acts on a node that has no listener of
// its own.
func TestActsAreToldAcrossACluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range testenv.RedisCluster(t, 2) {
		addrs = append(addrs, node.Addr)
	}
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { client.Close() })
	st := New(client, nil)
	t.Cleanup(func() { st.Close() })
	keys, err := st.Acts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	var requests []tenure.Request
	for n := range 30 {
		key := fmt.Sprintf("acts%d/%d", n/3, n)
		left[key] = true
		requests = append(requests, seize(key))
	}
	for _, a := range st.Apply(t.Context(), requests) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	late := time.After(testenv.Patience)
	for len(left) > 0 {
		select {
		case key := <-keys:
			delete(left, key)
		case <-late:
			t.Fatalf("not told: %v", left)
		}
	}
}

// TestPlantedActsAreIgnored publishes on the channel as another program might.
func TestPlantedActsAreIgnored(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	st, keys := listens(t, server)
	client, ctx := dial(t, server), t.Context()
	long := strings.Repeat("k", fence.MaxKey)
	for _, word := range []string{
		"", long + "k", strings.Repeat("k", 8<<20), "acts/\x00", "acts/\xff", "acts//two",
		"../acts", "acts\nacts", st.names.acts() + "/", long,
	} {
		if err := client.Publish(ctx, st.names.acts(), word).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Publish(ctx, "other-"+st.names.acts(), "acts/other").Err(); err != nil {
		t.Fatal(err)
	}
	toldOf(t, keys, long) // it may be a key
	if a := one(ctx, st, seize("acts/true")); a.Err != nil {
		t.Fatal(a.Err)
	}
	toldOf(t, keys, "acts/true")
}

// TestAClosedStoreTellsOfNoActs checks that Close closes the channels of
// listeners and leaves no goroutine behind. It is not parallel, because it
// counts goroutines.
func TestAClosedStoreTellsOfNoActs(t *testing.T) {
	server := testenv.Redis(t)
	client := dial(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := runtime.NumGoroutine()
	st := New(client, &Options{Prefix: server.Prefix()})
	var all []<-chan string
	for range 10 {
		keys, err := st.Acts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, keys)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, keys := range all {
		ended(t, keys)
	}
	if _, err := st.Acts(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("after it was closed: %v, want that", err)
	}
	testenv.Eventually(t, "nothing is left", func() error {
		if n := runtime.NumGoroutine(); n > before {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

// keysOnly makes a user that may use the channels of keys, but not that of
// acts.
func keysOnly(t *testing.T, server *testenv.RedisServer) *goredis.Options {
	t.Helper()
	if _, err := server.Ask("ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all",
		"resetchannels", "&"+server.Prefix()+"{*"); err != nil {
		t.Fatal(err)
	}
	return &goredis.Options{Username: "weak", Password: "secret"}
}

// TestAUserWithoutTheChannelOfActsIsWokenAllTheSame checks that such a user's
// watches work, although the server refuses a whole command for one forbidden
// channel. Its own acts take effect, too.
func TestAUserWithoutTheChannelOfActsIsWokenAllTheSame(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	st := New(dialWith(t, server, keysOnly(t, server)), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	ctx := t.Context()
	for range 2 {
		_, err := st.Acts(ctx)
		if !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "channels that begin") {
			t.Errorf("listening: %v, want unknown, and what to do", err)
		}
	}
	woken, err := st.Watch(ctx, "weak/key")
	if err != nil {
		t.Fatal(err)
	}
	wakes := func(when string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(testenv.Patience):
			t.Fatalf("nobody was woken %s", when)
		}
	}
	act := func() {
		t.Helper()
		for _, a := range st.Apply(ctx, []tenure.Request{seize("weak/key"), seize("weak/other")}) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	act()
	wakes("by an act")
	if _, err := server.Ask("CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
		t.Fatal(err)
	}
	wakes("after a reconnect")
	act()
	wakes("by an act after it")
}

// TestActsThatAreForbiddenMeanwhileEnd takes the permission away from a
// listener. Its channel is closed, and the store stays subscribed to keys.
func TestActsThatAreForbiddenMeanwhileEnd(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	o := keysOnly(t, server)
	if _, err := server.Ask("ACL", "SETUSER", "weak", "&*"); err != nil {
		t.Fatal(err)
	}
	st := New(dialWith(t, server, o), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	client, ctx := dial(t, server), t.Context()
	if _, err := st.Watch(ctx, "weak/key"); err != nil {
		t.Fatal(err)
	}
	keys, err := st.Acts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	keysOnly(t, server) // the server ends the connection
	st.listener.check() // as it does every 15 s
	st.listener.check()
	ended(t, keys)
	name := st.names.record("weak/key")
	testenv.Eventually(t, "the key is subscribed to", func() error {
		if n := client.PubSubNumSub(ctx, name).Val()[name]; n != 1 {
			return fmt.Errorf("%d subscriptions", n)
		}
		return nil
	})
	_, err = st.Acts(ctx)
	if !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "channels that begin") {
		t.Errorf("listening again: %v, want unknown, and what to do", err)
	}
}

// TestWatchesOutliveAnUnusedChannelOfActs forbids the channel of acts while
// nobody listens any more and the store is still subscribed. The server ends
// the connection. The store must subscribe to all keys again.
func TestWatchesOutliveAnUnusedChannelOfActs(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	o := keysOnly(t, server)
	if _, err := server.Ask("ACL", "SETUSER", "weak", "&*"); err != nil {
		t.Fatal(err)
	}
	st := New(dialWith(t, server, o), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	st.hub.Kept = time.Hour // the subscription to acts stays
	client, ctx := dial(t, server), t.Context()
	var names []string
	for _, key := range []string{"weak/one", "weak/two"} {
		if _, err := st.Watch(ctx, key); err != nil {
			t.Fatal(err)
		}
		names = append(names, st.names.record(key))
	}
	listening, cancel := context.WithCancel(ctx)
	keys, err := st.Acts(listening)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	ended(t, keys)
	keysOnly(t, server)
	testenv.Eventually(t, "the keys are subscribed to", func() error {
		st.listener.resubscribe() // as it does when a check finds channels missing
		counts, err := client.PubSubNumSub(ctx, names...).Result()
		for name, n := range counts {
			if n != 1 {
				return fmt.Errorf("%d subscriptions to %s", n, name)
			}
		}
		return err
	})
}

// TestManyActsAreToldInFewMessages checks that there is one message for each
// key, and one in all while nobody listens.
func TestManyActsAreToldInFewMessages(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	client, ctx := dial(t, server), t.Context()
	st := New(client, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	const many, twice = chunkSize, 10
	published := func() (n int) {
		stats, err := server.Ask("INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, found := strings.Cut(stats, "cmdstat_publish:calls="); found {
			_, _ = fmt.Sscan(rest[:strings.IndexByte(rest, ',')], &n)
		}
		return n
	}
	act := func() int {
		t.Helper()
		before := published()
		var requests []tenure.Request
		for n := range many {
			requests = append(requests, seize(fmt.Sprint("many/", n%(many-twice))))
		}
		for _, a := range st.Apply(ctx, requests) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		return published() - before
	}
	if n := act(); n != 1 {
		t.Errorf("%d messages while nobody listens, want one", n)
	}
	listener := client.Subscribe(ctx, st.names.acts())
	defer listener.Close()
	if _, err := listener.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if n := act(); n != many-twice {
		t.Errorf("%d messages of %d keys", n, many-twice)
	}
	told := map[string]bool{}
	for range many - twice {
		m, err := listener.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		told[m.Payload] = true
	}
	if len(told) != many-twice {
		t.Errorf("%d keys were told, want %d", len(told), many-twice)
	}
}
