package redis

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

func claim(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Minute}
}

// then makes another request of the same grant.
func then(verb tenure.Verb, mine tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: mine.Key, Secret: mine.Secret}
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// warm opens a connection and loads the scripts, so that the request itself is
// cut afterwards.
func warm(t *testing.T, st store.Store) {
	t.Helper()
	if a := storetest.Resolve(t.Context(), st, claim("warm/"+string(tenure.NewSecret()), "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
}

// overNetwork makes a store that reaches the server over a bad network and does
// not retry by itself, a store with a good connection, and the network.
func overNetwork(t *testing.T) (far, near *Store, net *testenv.Network) {
	t.Helper()
	server := testenv.Redis(t)
	net = testenv.NewNetwork(t, server.Addr)
	far = New(overNet(t, net), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { far.Close() })
	return far, New(dial(t, server), &Options{Prefix: server.Prefix()}), net
}

func overNet(t *testing.T, net *testenv.Network) *goredis.Client {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: net.Addr, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

// TestAConnectionCutAfterTheRequestLeavesOneTruth cuts the connection after the
// server has carried out the request. The client learns the outcome by asking
// again.
func TestAConnectionCutAfterTheRequestLeavesOneTruth(t *testing.T) {
	t.Parallel()
	far, near, net := overNetwork(t)
	storetest.CutAfterRequest(t, far, near, net.LoseReply)
}

// TestAConnectionCutBeforeTheRequestLeavesNothing cuts it before the server
// gets the request.
func TestAConnectionCutBeforeTheRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	far, near, net := overNetwork(t)
	storetest.CutBeforeRequest(t, far, near, net.LoseRequests)
}

// TestANumberedWriteWhoseReplyIsLostIsMadeOnce writes again after a lost reply.
// The guard refuses the second write as repeated, and so the writer learns that
// the first was made.
func TestANumberedWriteWhoseReplyIsLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	net := testenv.NewNetwork(t, server.Addr)
	key := server.Prefix() + "log"
	g, err := OpenGuard(overNet(t, net), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	push := func(seq uint64) error {
		_, err := g.Do(ctx, stamp(20, 1, seq), Command{"RPUSH", key, seq})
		return err
	}
	if err := push(1); err != nil {
		t.Fatal(err)
	}
	near := dial(t, server)
	net.LoseReply(func() { err = push(2) }, func() error {
		if n := near.LLen(ctx, key).Val(); n != 2 {
			return fmt.Errorf("%d entries", n)
		}
		return nil
	})
	if !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write whose reply was lost: %v, want unknown", err)
	}
	err = push(2)
	for errors.Is(err, store.ErrUnknown) {
		err = push(2)
	}
	if !errors.Is(err, fence.ErrRepeated) {
		t.Errorf("the same write again: %v, want repeated", err)
	}
	if n := near.LLen(ctx, key).Val(); n != 2 {
		t.Errorf("two writes left %d entries", n)
	}
}

// TestAWatchOutlivesItsConnection checks that waiters are woken after a
// reconnect, because messages may have been missed.
func TestAWatchOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	st, near, net := overNetwork(t)
	ctx := t.Context()
	mine := claim("cut/watch", "ann")
	if a := one(ctx, near, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	woken, err := st.Watch(ctx, mine.Key)
	if err != nil {
		t.Fatal(err)
	}
	net.LoseReplies(func() {
		if a := one(ctx, near, then(tenure.Release, mine)); a.Err != nil {
			t.Fatal(a.Err)
		}
	})
	select {
	case _, open := <-woken:
		if !open {
			t.Error("the watch has ended")
		}
	case <-time.After(testenv.Patience):
		t.Error("the key was released while the connection was cut, and nobody was woken")
	}
}

// TestAServerThatIsNotThereIsUnknown checks that the error comes in time.
func TestAServerThatIsNotThereIsUnknown(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	storetest.NotThere(t, New(client, nil))
}

// TestAServerThatHangsHoldsNobodyUp checks that the first call ends after the
// client's read timeout at the latest, and later calls as soon as their
// contexts end.
func TestAServerThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	hasty := New(dialWith(t, server, &goredis.Options{ReadTimeout: 200 * time.Millisecond}), nil)
	patient := New(dialWith(t, server, &goredis.Options{ReadTimeout: time.Hour}), nil)
	warm(t, hasty)
	warm(t, patient)
	server.Pause(t)
	mine := claim("hang/1", "ann")
	for n, st := range []*Store{hasty, patient, patient} {
		ctx, cancel := context.WithCancel(t.Context()) // without a deadline go-redis does not notice its end
		time.AfterFunc(20*time.Millisecond, cancel)
		a := one(ctx, st, mine)
		if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.Canceled) {
			t.Errorf("call %d, cancelled while the server hangs: %v", n, a.Err)
		}
	}
	server.Resume()
	if a := storetest.Resolve(t.Context(), hasty, mine); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("asked again: %v in term %d, want the one grant", a.Err, a.Record.Terms)
	}
}
