package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
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

// TestConformanceOnACluster runs the suite on a cluster. A namespace lives on
// one node. Batches and listings over several nodes keep the laws, too.
func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range testenv.RedisCluster(t, 2) {
		addrs = append(addrs, node.Addr)
	}
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { client.Close() }) // after the parallel subtests
	var places atomic.Int64
	storetest.Run(t, func(tb testing.TB) storetest.Harness {
		prefix := fmt.Sprintf("place%d:", places.Add(1))
		clock := storetest.NewClock()
		clock.Advance(time.Since(clock.Now()))
		return storetest.Harness{
			Open: func(_ testing.TB, o storetest.Options) store.Store {
				s := New(client, &Options{Prefix: prefix, Retention: o.Retention})
				s.clock = clock.Now
				return s
			},
			Wipe: func(tb testing.TB) {
				err := client.ForEachMaster(context.Background(), func(_ context.Context, node *goredis.Client) error {
					wipe(tb, node, prefix)
					return nil
				})
				if err != nil {
					tb.Error(err)
				}
			},
			Advance: clock.Advance,
			Slow:    true,
		}
	})
}

// TestGuardOnACluster checks that a value and its mark live on one node, with a
// tag or without.
func TestGuardOnACluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range testenv.RedisCluster(t, 2) {
		addrs = append(addrs, node.Addr)
	}
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	for n := range 20 {
		for _, key := range []string{fmt.Sprintf("plain %d", n), fmt.Sprintf("with {tag %d} inside", n)} {
			g, err := OpenGuard(client, key, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Write(t.Context(), stamp(20, 1, 0), strings.NewReader("content")); err != nil {
				t.Errorf("%q: %v", key, err)
			}
			if _, err := g.Write(t.Context(), stamp(19, 1, 0), strings.NewReader("late")); !errors.Is(err, fence.ErrStale) {
				t.Errorf("%q, stale: %v", key, err)
			}
		}
	}
}

// trips counts the commands that go to the server, without those that begin a
// new connection.
type trips struct{ n atomic.Int64 }

func (c *trips) count(cmd goredis.Cmder) {
	if name := cmd.Name(); name != "hello" && name != "client" {
		c.n.Add(1)
	}
}

func (c *trips) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error { c.count(cmd); return next(ctx, cmd) }
}

func (c *trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error { c.count(cmds[0]); return next(ctx, cmds) }
}

// TestABatchIsOneRoundTrip checks batches of all sizes and mixes, with refusals
// and with several namespaces.
func TestABatchIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	count := &trips{}
	client.AddHook(count)
	st := New(client, &Options{Prefix: server.Prefix()})
	warm(t, st)
	var held, batch []tenure.Request
	for n := range 1000 {
		held = append(held, claim(fmt.Sprintf("trips-%d/%d", n%3, n), "ann"))
	}
	once := func(what string, requests ...tenure.Request) {
		t.Helper()
		count.n.Store(0)
		for _, a := range st.Apply(ctx, requests) {
			if errors.Is(a.Err, store.ErrUnknown) {
				t.Fatal(a.Err)
			}
		}
		if n := count.n.Load(); n != 1 {
			t.Errorf("%s took %d round trips", what, n)
		}
	}
	once("acquiring 1000 keys", held...)
	once("one renewal", then(tenure.Renew, held[0]))
	once("one refusal", claim(held[0].Key, "bob"))
	for i, req := range held {
		verb := []tenure.Verb{tenure.Renew, tenure.Report, tenure.Release}[i%3]
		batch = append(batch, then(verb, req))
		if i%10 == 0 {
			batch = append(batch, claim(req.Key, "bob"))
		}
	}
	once("a mixed batch", batch...)
}

// TestRequestsOnOneKeyKeepTheirOrderOverChunks sends a batch in which several
// scripts have requests on one key.
func TestRequestsOnOneKeyKeepTheirOrderOverChunks(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	st, ctx := New(dial(t, server), &Options{Prefix: server.Prefix()}), t.Context()
	var requests []tenure.Request
	for n := range 400 {
		mine := claim("order/one", "ann")
		requests = append(requests, mine, claim(fmt.Sprintf("order/%d", n), "ann"), then(tenure.Release, mine))
	}
	for i, a := range st.Apply(ctx, requests) {
		if a.Err != nil {
			t.Fatalf("request %d: %v", i, a.Err)
		}
	}
	rec, err := st.Get(ctx, "order/one")
	if err != nil || rec.Terms != 400 || len(rec.History) != tenure.HistoryLen {
		t.Errorf("after 400 terms: %d terms, %d in the history, %v", rec.Terms, len(rec.History), err)
	}
}

// TestAServerThatForgotItsScriptsIsTaughtAgain checks that the client sends the
// whole script then.
func TestAServerThatForgotItsScriptsIsTaughtAgain(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	st, ctx := New(dial(t, server), nil), t.Context()
	for round := range 3 {
		if _, err := server.Ask("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		for _, a := range st.Apply(ctx, []tenure.Request{claim(fmt.Sprintf("one/%d", round), "ann"), claim(fmt.Sprintf("two/%d", round), "ann")}) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
}

// TestADamagedRecordSpoilsNothingBesideIt checks that the store decides nothing
// by a damaged record and does not overwrite it.
func TestADamagedRecordSpoilsNothingBesideIt(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	st := New(client, &Options{Prefix: server.Prefix()})
	for name, damage := range map[string]func(key string){
		"cut off":      func(key string) { client.HSet(ctx, key, "r", client.HGet(ctx, key, "r").Val()[:40]) },
		"nonsense":     func(key string) { client.HSet(ctx, key, "r", "nonsense") },
		"another type": func(key string) { client.Del(ctx, key); client.Set(ctx, key, "text", 0) },
	} {
		mine, beside := claim("damage/"+name, "ann"), claim("damage/beside "+name, "ann")
		if a := one(ctx, st, mine); a.Err != nil {
			t.Fatal(a.Err)
		}
		damage(st.names.record(mine.Key))
		answers := st.Apply(ctx, []tenure.Request{then(tenure.Renew, mine), beside, claim(mine.Key, "bob")})
		for _, i := range []int{0, 2} {
			if !errors.Is(answers[i].Err, ErrDamaged) || !errors.Is(answers[i].Err, store.ErrUnknown) || errors.Is(answers[i].Err, fence.ErrInvalid) {
				t.Errorf("%s: answer %d is %v, want damaged and unknown", name, i, answers[i].Err)
			}
		}
		if answers[1].Err != nil {
			t.Errorf("%s: beside it: %v", name, answers[1].Err)
		}
		if _, err := st.Get(ctx, mine.Key); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%s: Get: %v, want unknown", name, err)
		}
	}
}

// TestARefusalAfterATakeoverSaysWho checks that this answer carries the
// history, as no other does.
func TestARefusalAfterATakeoverSaysWho(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	st, ctx := New(dial(t, server), &Options{Prefix: server.Prefix()}), t.Context()
	mine := claim("taken/over", "ann")
	hand := tenure.Request{Verb: tenure.Revoke, Key: mine.Key, Secret: tenure.NewSecret(), Actor: "zoe", Note: "ran wild"}
	a := st.Apply(ctx, []tenure.Request{mine, hand, then(tenure.Renew, mine)})[2]
	if a.Err == nil || !strings.Contains(a.Err.Error(), "by zoe (ran wild)") {
		t.Errorf("renewing what was revoked: %v", a.Err)
	}
}

// TestAStoreIsOpenedByURL checks good URLs, and that bad ones are refused.
func TestAStoreIsOpenedByURL(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	ctx := t.Context()
	st, err := store.Open(ctx, server.URL()+"?retention=2h&prefix="+server.Prefix()+"&read_timeout=5s")
	if err != nil {
		t.Fatal(err)
	}
	if a := one(ctx, st, claim("url/key", "ann")); a.Err != nil {
		t.Error(a.Err)
	}
	left := dial(t, server).PTTL(ctx, newNaming(server.Prefix()).record("url/key")).Val()
	if left <= 2*time.Hour || left > 2*time.Hour+20*time.Minute {
		t.Errorf("the record of a lease of a minute leaves in %s, the retention is 2h", left)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if a := one(ctx, st, claim("url/key", "ann")); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("after Close: %v, want unknown", a.Err)
	}
	for _, bad := range []string{
		"redis://localhost/zero", "redis://localhost/0#key", "redis://localhost/0?retention=soon", "redis://localhost/0?retention=-1h", "redis://localhost/0?wait=some", "redis://localhost/0?nonsense=1",
	} {
		if _, err := store.Open(ctx, bad); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", bad, err)
		}
	}
	for _, bad := range []string{
		"redis://ann:hunter2@localhost/zero",
		"redis://:/hunter2@localhost", "redis://ann:1/hunter2@localhost", "redis://ann:1/hunter2/@localhost", "redis://ann:?hunter2@localhost",
	} {
		if _, err := store.Open(ctx, bad); !errors.Is(err, fence.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a bad URL with a password: %v", err)
		}
	}
}

// TestNothingIsLeftBehind lets forty thousand keys come and go, with hundreds
// of waiters. Afterwards the server and the client are as before.
func TestNothingIsLeftBehind(t *testing.T) {
	server := testenv.RedisAlone(t)
	const pool = 2 // idle connections that the client keeps
	client, ctx := dialWith(t, server, &goredis.Options{PoolSize: pool}), t.Context()
	st := New(client, &Options{Retention: time.Second})
	t.Cleanup(func() { st.Close() })
	st.hub.Kept = time.Millisecond
	keys := make([]string, 40_000)
	for n := range keys {
		keys[n] = fmt.Sprintf("leak-%d/%d", n%10, n)
	}
	part := func(keys []string, waited int) {
		var takes, ends []tenure.Request
		for _, key := range keys {
			mine := claim(key, "ann")
			takes, ends = append(takes, mine), append(ends, then(tenure.Release, mine))
		}
		for _, a := range st.Apply(ctx, takes) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		for _, key := range keys[:waited] {
			watching, cancel := context.WithCancel(ctx)
			if _, err := st.Watch(watching, key); err != nil {
				t.Fatal(err)
			}
			if a := one(ctx, st, claim(key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
				t.Fatal(a.Err)
			}
			cancel()
		}
		for _, a := range st.Apply(ctx, ends) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	some := func(keys []string) {
		for few := range slices.Chunk(keys, 2000) {
			part(few, 20)
		}
	}
	some(keys[:4000]) // so that connections, scripts and buffers are there
	settle := func(want *footprint) footprint {
		var last footprint
		testenv.Eventually(t, "all is as it was", func() error {
			last = footprintOf(ctx, client, st)
			return last.within(want)
		})
		return last
	}
	before := settle(nil)
	before.connections = pool + 2 // the connection of the watches, and one that go-redis dials ahead
	some(keys)
	after := settle(&before)
	runtime.KeepAlive(keys)
	t.Logf("before: %+v, after: %+v", before, after)
}

// topics returns the channels that a store is subscribed to.
func topics(st *Store) []string {
	waited, unused := st.hub.Keys()
	return append(waited, unused...)
}

// footprint is what a store takes up in Redis and in this process.
type footprint struct {
	records, goroutines, connections, topics int
	heap                                     uint64
}

func footprintOf(ctx context.Context, client *goredis.Client, st *Store) footprint {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	listed := strings.Count(client.ClientList(ctx).Val(), "\n")
	return footprint{int(client.DBSize(ctx).Val()), runtime.NumGoroutine(), listed, len(topics(st)), m.HeapAlloc}
}

// within returns an error if the footprint is larger than an earlier one. A
// leak of a few bytes for each key would be megabytes.
func (f footprint) within(want *footprint) error {
	switch {
	case f.records != 0 || f.topics != 0:
		return fmt.Errorf("%d records and %d topics are left", f.records, f.topics)
	case want == nil:
		return nil
	case f.goroutines > want.goroutines || f.connections > want.connections:
		return fmt.Errorf("%d goroutines and %d connections, there were %d and %d", f.goroutines, f.connections, want.goroutines, want.connections)
	case f.heap > want.heap+2<<20:
		return fmt.Errorf("%d bytes on the heap, there were %d", f.heap, want.heap) // 50 bytes a key
	}
	return nil
}

// TestTheIndexIsTidiedAsItIsUsed checks that members whose records have expired
// do not pile up in a busy namespace.
func TestTheIndexIsTidiedAsItIsUsed(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	clock := storetest.NewClock()
	clock.Advance(time.Since(clock.Now()))
	st := New(client, &Options{Prefix: server.Prefix(), Retention: time.Hour})
	st.clock = clock.Now
	for n := range 500 {
		clock.Advance(time.Minute)
		mine := claim(fmt.Sprintf("tidy/%d", n), "ann")
		for _, a := range st.Apply(ctx, []tenure.Request{mine, then(tenure.Release, mine)}) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	// About one batch in sixteen looks at as many members as were added since.
	if n := client.ZCard(ctx, st.names.index("tidy")).Val(); n > 200 {
		t.Errorf("a key is used every minute and kept for an hour: %d of 500 are in the index", n)
	}
}

// TestANameThatAnotherProgramUsesStopsNobodyElse has another program use the
// name of a record. The index is tidied all the same when that record would
// have expired.
func TestANameThatAnotherProgramUsesStopsNobodyElse(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	clock := storetest.NewClock()
	clock.Advance(time.Since(clock.Now()))
	st := New(client, &Options{Prefix: server.Prefix(), Retention: time.Hour})
	st.clock = clock.Now
	mine := claim("used/elsewhere", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	client.Set(ctx, st.names.record(mine.Key), "text", 0)
	clock.Advance(3 * time.Hour)
	var many []tenure.Request // enough for the index to be tidied
	for n := range 32 {
		many = append(many, claim(fmt.Sprintf("used/%d", n), "ann"))
	}
	for _, a := range st.Apply(ctx, many) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if err := client.ZScore(ctx, st.names.index("used"), mine.Key).Err(); !errors.Is(err, goredis.Nil) {
		t.Errorf("it is still in the index: %v", err)
	}
}

// TestWorkDoneOnceStaysDoneAtAllTimesOfTheLaw: the record matters for 200 more
// years. That is longer than the law's clock goes.
func TestWorkDoneOnceStaysDoneAtAllTimesOfTheLaw(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	st := New(dial(t, server), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	now := time.Now()
	st.clock = func() time.Time { return now }
	for _, year := range []int{2056, 2150, 2255} {
		now = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		once := claim(fmt.Sprintf("once/%d", year), "ann")
		once.Every = tenure.Once
		for _, q := range []tenure.Request{once, then(tenure.Release, once)} {
			if a := one(t.Context(), st, q); a.Err != nil {
				t.Fatalf("in %d, %s: %v", year, q.Verb, a.Err)
			}
		}
		once.Secret = tenure.NewSecret()
		if a := one(t.Context(), st, once); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Errorf("in %d, again: %v, want it refused", year, a.Err)
		}
		if rec, err := st.Get(t.Context(), once.Key); err != nil || !rec.Succeeded.Equal(now) {
			t.Errorf("in %d the record is %+v, %v", year, rec, err)
		}
	}
}

// TestTheScriptCountsSlotsLikeTheLaw: the end of the slot is exact even if it
// and the period together have more than 53 bits.
func TestTheScriptCountsSlotsLikeTheLaw(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	st := New(dial(t, server), &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	var now time.Time
	st.clock = func() time.Time { return now }
	for n := range 4 {
		now = time.Date(2026, 1, 1, 0, 0, 0, n*1000, time.UTC)
		end := now.Add(tenure.Once / 2)
		once, byHand := claim(fmt.Sprintf("slots/%d", n), "ann"), claim(fmt.Sprintf("slots/%d", n), "op")
		once.Every = tenure.Once
		for _, q := range []tenure.Request{once, byHand} { // the second one is the last success
			if a := one(t.Context(), st, q); a.Err != nil {
				t.Fatal(a.Err)
			}
			if a := one(t.Context(), st, then(tenure.Release, q)); a.Err != nil {
				t.Fatal(a.Err)
			}
			now = end.Add(-time.Microsecond)
		}
		once.Secret = tenure.NewSecret()
		if a := one(t.Context(), st, once); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Errorf("a microsecond before %s: %v, want it refused", end, a.Err)
		}
		now = end
		if a := one(t.Context(), st, once); a.Err != nil {
			t.Errorf("at %s: %v, want a grant", end, a.Err)
		}
	}
}
