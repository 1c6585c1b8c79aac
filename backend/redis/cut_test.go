package redis

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

func claim(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Minute}
}

// then is another request of the same grant.
func then(verb tenure.Verb, mine tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: mine.Key, Secret: mine.Secret}
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// warm opens a connection and loads the scripts, so that what is cut afterwards is the request itself.
func warm(t *testing.T, st store.Store) {
	t.Helper()
	if a := storetest.Resolve(t.Context(), st, claim("warm/"+string(tenure.NewSecret()), "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
}

// overNetwork is a store that reaches the server over a bad network, and asks nothing twice by itself; another that does not; and the network.
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

// TestAConnectionCutAfterTheRequestLeavesOneTruth: the server has done what was asked, the client does not know, and learns it by asking again.
func TestAConnectionCutAfterTheRequestLeavesOneTruth(t *testing.T) {
	t.Parallel()
	far, near, net := overNetwork(t)
	storetest.CutAfterRequest(t, far, near, net.LoseReply)
}

// TestAConnectionCutBeforeTheRequestLeavesNothing.
func TestAConnectionCutBeforeTheRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	far, near, net := overNetwork(t)
	storetest.CutBeforeRequest(t, far, near, net.LoseRequests)
}

// TestANumberedWriteWhoseReplyIsLostIsMadeOnce: written again it is refused as repeated, and that is how the writer learns that it was made.
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

// TestAWatchOutlivesItsConnection: whoever waits is woken when the connection is there again, because something may have been missed.
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

// TestAServerThatIsNotThereIsUnknown, and says so in time.
func TestAServerThatIsNotThereIsUnknown(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	storetest.NotThere(t, New(client, nil))
}

// TestAServerThatHangsHoldsNobodyUp: the first call notices after the client's read timeout at the latest, and those after it at once.
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
		ctx, cancel := context.WithCancel(t.Context()) // no deadline: go-redis would not notice
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
