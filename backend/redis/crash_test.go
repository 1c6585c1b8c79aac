package redis

import (
	"context"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/crowd"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestAKilledServerBreaksNoLaw has 32 clients acquire, renew and write while
// the server is killed and started again. They go on by themselves.
func TestAKilledServerBreaksNoLaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		settings []string
		forgets  bool
	}{
		{"it keeps what it has confirmed", []string{"--appendonly", "yes", "--appendfsync", "always"}, false},
		{"it forgets everything", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.RedisAlone(t, c.settings...)
			guarding := dial(t, server)
			if c.forgets { // otherwise the server would forget the marks as well
				guarding = dial(t, testenv.RedisAlone(t))
			}
			harness := written(t, guarding)
			harness.TTL, harness.Forgets = time.Second, c.forgets
			for range 32 {
				client := goredis.NewClient(&goredis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1, PoolSize: 2})
				t.Cleanup(func() { client.Close() })
				harness.Stores = append(harness.Stores, New(client, nil))
			}
			all := crowd.Gather(t, harness)
			all.GoesOn("the clients work", 40)
			for range 3 {
				server.Kill()
				server.Restart(t)
				all.GoesOn("the clients recover by themselves", 40)
			}
			all.Judge()
		})
	}
}

// written makes a harness for clients that write into guarded lists.
func written(t *testing.T, guarding *goredis.Client) crowd.Harness {
	t.Helper()
	h := crowd.Harness{Keys: crowd.Keys(8)}
	guards := map[string]*Guard{}
	for _, key := range h.Keys {
		g, err := OpenGuard(guarding, t.Name()+key, nil)
		if err != nil {
			t.Fatal(err)
		}
		guards[key] = g
	}
	h.Write = func(ctx context.Context, key string, s fence.Stamp) error {
		_, err := guards[key].Do(ctx, s, Command{"RPUSH", guards[key].key, int64(s.Token)})
		return err
	}
	h.Written = func(ctx context.Context, key string) ([]fence.Token, error) {
		log, err := guarding.LRange(ctx, guards[key].key, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		tokens := make([]fence.Token, len(log))
		for i, text := range log {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, err
			}
			tokens[i] = fence.Token(n)
		}
		return tokens, nil
	}
	return h
}
