package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// deaf is a hook of a client that loses the replies to scripts while told to.
// The server has carried them out.
type deaf struct{ atomic.Bool }

func (*deaf) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (d *deaf) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if d.Load() && cmd.Name() == "evalsha" {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

func (*deaf) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// inQueue waits until a key's queue has this many waiters.
func inQueue(t *testing.T, client *goredis.Client, st *Store, key string, want int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d are in the queue", want), func() error {
		if n := queueLength(t, client, st, key); n != want {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// TestAPositionNobodyKnowsOfIsGivenUpAsWell loses the reply that says that the
// store is in the queue. The store must leave the queue all the same: all
// others would wait when it is named.
func TestAPositionNobodyKnowsOfIsGivenUpAsWell(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(w *waiter){
		"ended":  func(w *waiter) { w.end() },
		"closed": func(w *waiter) { _ = w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			client, key := dial(t, server), "position/"+name
			ann := New(client, &Options{Prefix: server.Prefix()}) // holds the key, and never waits
			if a := one(t.Context(), ann, claim(key, "ann")); a.Err != nil {
				t.Fatal(a.Err)
			}
			bob := waits(t, server, key, "bob")
			warm(t, bob.Store) // its connection is open
			var lost deaf
			bob.client.(*goredis.Client).AddHook(&lost)
			lost.Store(true)
			if a := one(t.Context(), bob.Store, bob.mine); !errors.Is(a.Err, store.ErrUnknown) {
				t.Fatalf("a request whose reply was lost: %v, want unknown", a.Err)
			}
			lost.Store(false)
			inQueue(t, client, ann, key, 1)
			goes(bob)
			inQueue(t, client, ann, key, 0)
		})
	}
}

// leaving is a context that ends just after its user has seen, for the second
// time, that it has not ended.
type leaving struct {
	context.Context
	seen   *atomic.Int64
	cancel context.CancelFunc
	gone   chan struct{} // closed when the waiter has gone
}

func (c leaving) Err() error {
	err := c.Context.Err()
	if err == nil && c.seen.Add(1) == 2 {
		c.cancel()
		<-c.gone
	}
	return err
}

// TestAWatchThatEndsAsItBeginsIsNotKept checks that such a watch leaves no
// subscription and no position in the queue. Nobody would ever end them.
func TestAWatchThatEndsAsItBeginsIsNotKept(t *testing.T) {
	t.Parallel()
	w := waits(t, testenv.Redis(t), "watch/leaving", "ann")
	w.end()
	for range w.woken { // until it is closed
	}
	inner, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := leaving{inner, &atomic.Int64{}, cancel, make(chan struct{})}
	done := make(chan struct{})
	go func() {
		_, _ = w.Watch(ctx, w.mine.Key) // Watch begins by checking that its context has not ended
		close(ctx.gone)
		close(done)
	}()
	<-done
	cancel()
	testenv.Eventually(t, "nobody watches", func() error {
		if w.hub.Watches(w.names.record(w.mine.Key)) {
			return errors.New("somebody does")
		}
		return nil
	})
}

// told is a connection that notes when the busy server has refused it a
// subscription.
type told struct {
	net.Conn
	asks    *atomic.Bool
	refused *atomic.Bool
}

func (c told) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("subscribe")) {
		c.asks.Store(true)
	}
	return c.Conn.Write(b)
}

func (c told) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.asks.Load() && bytes.Contains(b[:n], []byte("BUSY")) {
		c.refused.Store(true)
	}
	return n, err
}

// TestAWatchOutlivesABusyServer makes a new connection while the server lets
// nobody subscribe. go-redis hides the refusal.
func TestAWatchOutlivesABusyServer(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	var refused atomic.Bool
	conns := make(chan net.Conn, 1000)
	st := New(dialWith(t, server, &goredis.Options{Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			conns <- conn
		}
		return told{conn, &atomic.Bool{}, &refused}, err
	}}), nil)
	t.Cleanup(func() { st.Close() })
	st.listener.every = 100 * time.Millisecond
	names := []string{st.names.record("busy/one"), st.names.record("busy/two")}
	for _, key := range []string{"busy/one", "busy/two"} {
		if _, err := st.Watch(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	client, ctx := dialWith(t, server, &goredis.Options{MaxRetries: -1, ReadTimeout: testenv.Patience}), t.Context()
	if err := client.ConfigSet(ctx, "lua-time-limit", "1").Err(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- client.Eval(ctx, "while true do end", nil).Err() }()
	testenv.Eventually(t, "the server is busy", func() error {
		if err := client.Ping(ctx).Err(); !goredis.HasErrorPrefix(err, "BUSY") {
			return fmt.Errorf("it answers %w", err)
		}
		return nil
	})
	for len(conns) > 0 {
		_ = (<-conns).Close()
	}
	testenv.Eventually(t, "it has refused a subscription", func() error {
		if !refused.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	if err := client.ScriptKill(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	<-done
	testenv.Eventually(t, "both are subscribed to", func() error {
		for _, name := range names {
			if n := client.PubSubNumSub(ctx, name).Val()[name]; n != 1 {
				return fmt.Errorf("%d subscriptions of %s", n, name)
			}
		}
		return nil
	})
}
