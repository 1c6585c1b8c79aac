package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
)

// dial makes a client of a server. It is closed when the test ends.
func dial(tb testing.TB, server *testenv.RedisServer) *goredis.Client {
	tb.Helper()
	return dialWith(tb, server, &goredis.Options{})
}

func dialWith(tb testing.TB, server *testenv.RedisServer, o *goredis.Options) *goredis.Client {
	tb.Helper()
	o.Addr = server.Addr
	// Replies may be late on a busy machine, and most tests need them.
	if o.ReadTimeout == 0 {
		o.ReadTimeout = testenv.Patience
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = testenv.Patience
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = testenv.Patience
	}
	client := goredis.NewClient(o)
	tb.Cleanup(func() { client.Close() })
	return client
}

// wipe removes all keys with a prefix.
func wipe(tb testing.TB, client goredis.UniversalClient, prefix string) {
	tb.Helper()
	ctx := context.Background()
	pages := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	var names []string
	for pages.Next(ctx) {
		names = append(names, pages.Val())
	}
	if len(names) > 0 {
		if err := client.Del(ctx, names...).Err(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := pages.Err(); err != nil {
		tb.Fatal(err)
	}
}

// place makes an empty store on the shared server, with a clock that the suite
// moves.
func place(tb testing.TB, lua *script) storetest.Harness {
	server := testenv.Redis(tb)
	client := dial(tb, server)
	tb.Cleanup(func() { wipe(tb, client, server.Prefix()) })
	clock := storetest.NewClock()
	clock.Advance(time.Until(clock.Now()) * -1) // near the server's clock, by which Redis expires keys
	return storetest.Harness{
		Open: func(_ testing.TB, o storetest.Options) store.Store {
			s := New(client, &Options{Prefix: server.Prefix(), Retention: o.Retention})
			s.apply = lua
			s.clock = clock.Now
			return s
		},
		Wipe:    func(tb testing.TB) { wipe(tb, client, server.Prefix()) },
		Advance: clock.Advance,
		Slow:    true,
	}
}

// TestConformance runs the whole suite of lease stores.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) storetest.Harness { return place(tb, applyScript()) })
}

// TestConformanceOnTheServersClock runs the parts of the suite that concern
// time, by the server's clock, as clients use it.
func TestConformanceOnTheServersClock(t *testing.T) {
	t.Parallel()
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness {
		server := testenv.Redis(tb)
		client := dial(tb, server)
		tb.Cleanup(func() { wipe(tb, client, server.Prefix()) })
		return storetest.Harness{
			Open: func(_ testing.TB, o storetest.Options) store.Store {
				return New(client, &Options{Prefix: server.Prefix(), Retention: o.Retention})
			},
			Wipe: func(tb testing.TB) { wipe(tb, client, server.Prefix()) },
			Slow: true,
		}
	})
}
