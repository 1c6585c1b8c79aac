package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// crowd is many clients that take turns at a few keys and write under each through a guard, and a judge who watches them.
type crowd struct {
	t      *testing.T
	guards map[string]*Guard
	terms  atomic.Int64

	mu      sync.Mutex
	newest  map[string]fence.Token // by key: the newest that a client was told of
	granted map[string]fence.Grant // by key and token
}

const crowdKeys = 6

func newCrowd(t *testing.T, client *clientv3.Client) *crowd {
	c := &crowd{t: t, guards: map[string]*Guard{}, newest: map[string]fence.Token{}, granted: map[string]fence.Grant{}}
	for n := range crowdKeys {
		key := fmt.Sprintf("crowd/%d", n)
		g, err := OpenGuard(client, "guarded/"+key, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.guards[key] = g
	}
	return c
}

// resolve asks until there is an answer, however often connections break meanwhile.
func resolve(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	for {
		a := one(ctx, st, req)
		if !errors.Is(a.Err, store.ErrUnknown) || ctx.Err() != nil {
			return a
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// live is one client: it acquires, renews, writes and releases until it is told to stop, and asks again whatever it is not told.
func (c *crowd) live(ctx, stop context.Context, st store.Store, n int) {
	for turn := 0; stop.Err() == nil; turn++ {
		key := fmt.Sprintf("crowd/%d", (n+turn)%crowdKeys)
		mine := claim(key, fmt.Sprintf("client %d", n))
		mine.TTL = 3 * time.Second // of whoever is cut off in the middle, the others wait for this
		before := c.known(key)
		a := resolve(ctx, st, mine)
		if a.Err != nil {
			c.late(ctx, a.Err)
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

// late accepts that a client came too late. Anything else is a broken law.
func (c *crowd) late(ctx context.Context, err error) {
	var lost *tenure.NotOwnedError
	if errors.Is(err, tenure.ErrHeld) || errors.As(err, &lost) && lost.Why != tenure.WhyUnknown || ctx.Err() != nil {
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
	for s.Seq = 1; s.Seq <= 2; s.Seq++ {
		var err error
		for {
			_, err = g.Do(ctx, s, clientv3.OpPut(g.key, fmt.Sprint(int64(s.Token))))
			if !errors.Is(err, store.ErrUnknown) || ctx.Err() != nil {
				break
			}
			time.Sleep(5 * time.Millisecond) // as a client backs off
		}
		a := resolve(ctx, st, then(tenure.Renew, mine))
		switch {
		case ctx.Err() != nil || err == nil || errors.Is(err, fence.ErrRepeated): // made, now or by the copy whose reply was lost
		case errors.Is(err, fence.ErrStale):
			if a.Err == nil {
				c.t.Errorf("law 7: %v, and the lease is still its own", err)
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

// judge holds what was written against law 3: the log of admitted writes never goes back. etcd keeps that log itself.
func (c *crowd) judge(ctx context.Context, client *clientv3.Client) {
	for key, g := range c.guards {
		last, writes := "", 0
		watch, cancel := context.WithCancel(ctx)
		now, err := client.Get(ctx, g.key)
		if err != nil || len(now.Kvs) == 0 {
			c.t.Fatalf("nothing was written under %s: %v", key, err)
		}
		for resp := range client.Watch(watch, g.key, clientv3.WithRev(1)) {
			if err := resp.Err(); err != nil {
				c.t.Fatal(err)
			}
			over := false
			for _, e := range resp.Events {
				token := fmt.Sprintf("%20s", e.Kv.Value)
				if strings.Compare(token, last) < 0 {
					c.t.Errorf("law 3: under %s token %s was admitted after %s", key, token, last)
				}
				last, over = token, over || e.Kv.ModRevision == now.Kvs[0].ModRevision
				writes++
			}
			if over {
				break
			}
		}
		cancel()
	}
}

// TestAKilledLeaderBreaksNoLaw: clients acquire, renew and write while one leader after another is killed and started again. They go on by themselves.
func TestAKilledLeaderBreaksNoLaw(t *testing.T) {
	t.Parallel()
	cluster := testenv.EtcdThree(t, "unsafe-no-fsync: true")
	guarding := dial(t, cluster)
	all := newCrowd(t, guarding)
	ctx, cancel := context.WithTimeout(t.Context(), 2*testenv.Patience)
	defer cancel()
	stop, halt := context.WithCancel(ctx)
	var clients sync.WaitGroup
	var stores []*Store
	for n := range 12 {
		st, err := store.Open(ctx, cluster.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		stores = append(stores, st.(*Store))
		clients.Go(func() { all.live(ctx, stop, st, n) })
	}
	progress := func(why string) {
		t.Helper()
		goal := all.terms.Load() + 10
		testenv.Eventually(t, why, func() error {
			if now := all.terms.Load(); now < goal && !t.Failed() {
				return fmt.Errorf("%d terms, waiting for %d", now, goal)
			}
			return nil
		})
	}
	progress("the clients work")
	for range 2 {
		leader := cluster.Leader(t)
		leader.Kill()
		progress("the clients recover by themselves, without the member that led")
		leader.Restart(t)
	}
	hung := cluster.Leader(t)
	hung.Pause(t) // a leader that hangs: its connections stay open
	progress("the clients recover by themselves from a leader that hangs")
	hung.Resume()
	progress("the clients go on when it is back")
	halt()
	clients.Wait()
	all.judge(t.Context(), guarding)
	t.Logf("%d terms", all.terms.Load())
	for key := range all.guards { // law 8
		rec, err := stores[0].Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for _, term := range rec.History {
			if term.Cause == "" {
				t.Errorf("law 8: token %d of %s has no cause", term.Token, key)
			}
		}
	}
}
