package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// crowd is many clients that take turns at a few keys and write under each through a guard, and a judge who watches them.
type crowd struct {
	t         *testing.T
	guards    map[string]*Guard
	remembers bool // the server keeps what it has confirmed
	terms     atomic.Int64

	mu      sync.Mutex
	newest  map[string]fence.Token // by key: the newest that a client was told of
	granted map[string]fence.Grant // by key and token
}

const crowdKeys = 8

func newCrowd(t *testing.T, guarding *goredis.Client, remembers bool) *crowd {
	c := &crowd{t: t, remembers: remembers, guards: map[string]*Guard{}, newest: map[string]fence.Token{}, granted: map[string]fence.Grant{}}
	for n := range crowdKeys {
		key := fmt.Sprintf("crowd/%d", n)
		g, err := OpenGuard(guarding, t.Name()+key, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.guards[key] = g
	}
	return c
}

// live is one client: it acquires, renews, writes and releases until it is told to stop, and asks again whatever it is not told.
func (c *crowd) live(ctx, stop context.Context, st store.Store, n int) {
	for turn := 0; stop.Err() == nil; turn++ {
		key := fmt.Sprintf("crowd/%d", (n+turn)%crowdKeys)
		mine := claim(key, fmt.Sprintf("client %d", n))
		mine.TTL = time.Second // of whoever is cut off in the middle, the others wait for this
		before := c.known(key)
		a := resolve(ctx, st, mine)
		if a.Err != nil {
			if !errors.Is(a.Err, tenure.ErrHeld) && (c.remembers || !errors.Is(a.Err, tenure.ErrNotOwned)) {
				c.late(ctx, a.Err)
			}
			continue
		}
		c.grantedAt(key, before, a.Record)
		c.write(ctx, st, mine, a.Record.Stamp())
		if a := resolve(ctx, st, then(tenure.Release, mine)); a.Err != nil {
			c.late(ctx, a.Err)
		}
		c.terms.Add(1)
	}
}

// late accepts that a client came too late: the server was down for longer than its lease. Anything else is a broken law.
func (c *crowd) late(ctx context.Context, err error) {
	var lost *tenure.NotOwnedError
	if errors.As(err, &lost) && (lost.Why != tenure.WhyUnknown || !c.remembers) || ctx.Err() != nil {
		return
	}
	c.t.Errorf("%v", err)
}

func (c *crowd) known(key string) fence.Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest[key]
}

// grantedAt holds a grant against laws 1 and 2: its token is its own, and above all that were known before it was asked for.
func (c *crowd) grantedAt(key string, before fence.Token, rec tenure.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := fmt.Sprintf("%s@%d", key, rec.Token)
	if g, taken := c.granted[at]; taken && g != rec.Grant {
		c.t.Errorf("law 1: token %d of %s was granted twice", rec.Token, key)
	}
	c.granted[at] = rec.Grant
	if rec.Token <= before {
		c.t.Errorf("law 2: token %d of %s was granted after %d", rec.Token, key, before)
	}
	c.newest[key] = max(c.newest[key], rec.Token)
}

// write renews and writes. Whoever is refused as stale must have lost the lease, too.
func (c *crowd) write(ctx context.Context, st store.Store, mine tenure.Request, s fence.Stamp) {
	g := c.guards[mine.Key]
	for s.Seq = 1; s.Seq <= 3; s.Seq++ {
		_, err := g.Do(ctx, s, Command{"RPUSH", g.key, int64(s.Token)})
		for errors.Is(err, store.ErrUnknown) && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond) // as a client backs off
			_, err = g.Do(ctx, s, Command{"RPUSH", g.key, int64(s.Token)})
		}
		a := resolve(ctx, st, then(tenure.Renew, mine))
		switch {
		case ctx.Err() != nil || err == nil || errors.Is(err, fence.ErrRepeated): // made, now or by the copy whose reply was lost
		case errors.Is(err, fence.ErrStale):
			if a.Err == nil && c.remembers {
				c.t.Errorf("%v, and the lease is still its own", err)
			}
		default:
			c.t.Errorf("guarded write: %v", err)
		}
		if a.Err != nil {
			c.late(ctx, a.Err)
			return
		}
	}
}

// judge holds what was written against law 3: the log of admitted writes never goes back.
func (c *crowd) judge(ctx context.Context, guarding *goredis.Client) {
	for key, g := range c.guards {
		log, err := guarding.LRange(ctx, g.key, 0, -1).Result()
		if err != nil {
			c.t.Fatal(err)
		}
		tokens := make([]int64, len(log))
		for i, text := range log {
			tokens[i], _ = strconv.ParseInt(text, 10, 64)
		}
		if !slices.IsSorted(tokens) {
			c.t.Errorf("law 3: the writes under %s were admitted with tokens %v", key, tokens)
		}
		if len(tokens) == 0 {
			c.t.Errorf("nothing was written under %s", key)
		}
	}
}

// TestAKilledServerBreaksNoLaw: 32 clients acquire, renew and write while the server is killed and started again. They go on by themselves.
func TestAKilledServerBreaksNoLaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		settings  []string
		remembers bool
	}{
		{"it keeps what it has confirmed", []string{"--appendonly", "yes", "--appendfsync", "always"}, true},
		{"it forgets everything", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.RedisAlone(t, c.settings...)
			guarding := dial(t, server)
			if !c.remembers { // or the marks would be forgotten as well
				guarding = dial(t, testenv.RedisAlone(t))
			}
			all := newCrowd(t, guarding, c.remembers)
			ctx, cancel := context.WithTimeout(t.Context(), 2*testenv.Patience)
			defer cancel()
			stop, halt := context.WithCancel(ctx)
			var clients sync.WaitGroup
			for n := range 32 {
				client := goredis.NewClient(&goredis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1, PoolSize: 2})
				t.Cleanup(func() { client.Close() })
				st := New(client, nil)
				clients.Go(func() { all.live(ctx, stop, st, n) })
			}
			progress := func(why string) {
				t.Helper()
				goal := all.terms.Load() + 40
				testenv.Eventually(t, why, func() error {
					if now := all.terms.Load(); now < goal && !t.Failed() {
						return fmt.Errorf("%d terms, waiting for %d", now, goal)
					}
					return nil
				})
			}
			progress("the clients work")
			for range 3 {
				server.Kill()
				server.Restart(t)
				progress("the clients recover by themselves")
			}
			halt()
			clients.Wait()
			all.judge(t.Context(), guarding)
			t.Logf("%d terms", all.terms.Load())
		})
	}
}
