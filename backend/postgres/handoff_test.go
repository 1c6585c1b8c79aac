package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/store"
)

// statements counts what clients send.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// handOffs lets clients take turns at a key, one worker each, until there were so many turns, and says what each client had and what was sent.
func handOffs(t *testing.T, clients, turns int) (served []int64, sent int64) {
	t.Helper()
	shared(t)
	name := schema()
	counted := &statements{}
	served = make([]int64, clients)
	var all []*croft.Client
	var stores []store.Store
	for n := range clients {
		config, err := pgxpool.ParseConfig(server.url + "&pool_max_conns=2")
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.Tracer = counted
		p, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		var st store.Store = postgres.New(p, &postgres.Options{Schema: name, SweepEvery: -1})
		stores = append(stores, st)
		c := croft.New(st, &croft.Options{Owner: fmt.Sprint("client ", n)})
		t.Cleanup(func() { c.Close(); st.Close() })
		all = append(all, c)
	}
	var had atomic.Int64
	run := func(upTo int) {
		var workers sync.WaitGroup
		for n, c := range all {
			workers.Go(func() {
				for had.Load() < int64(upTo) {
					l, err := c.Acquire(t.Context(), "handoff/key", &croft.LeaseOptions{WaitFor: croft.Forever})
					if err != nil {
						t.Errorf("client %d: %v", n, err)
						return
					}
					served[n]++
					had.Add(1)
					err = l.Release(t.Context())
					for errors.Is(err, croft.ErrUnknown) { // on a machine that stands still it takes longer than a release waits
						err = l.Release(t.Context())
					}
					if err != nil {
						t.Errorf("client %d: %v", n, err)
					}
				}
			})
		}
		workers.Wait()
	}
	run(2 * clients) // connections, statements and listeners
	clear(served)
	had.Store(0)
	before := counted.n.Load()
	run(turns)
	sent = counted.n.Load() - before
	if n := number(t, "SELECT count(*) FROM "+name+".waiter"); n > int64(clients) {
		t.Errorf("%d clients are %d in the list of those who wait", clients, n)
	}
	for n, c := range all {
		c.Close()
		stores[n].Close()
	}
	if n := number(t, "SELECT count(*) FROM "+name+".waiter WHERE NOT named"); n > 0 {
		t.Errorf("%d clients wait when all are closed", n)
	}
	return served, sent
}

// TestAHandOffCostsTheSameHoweverManyWait: a release wakes one client of sixteen, not all.
func TestAHandOffCostsTheSameHoweverManyWait(t *testing.T) {
	const turns = 200
	_, sent := handOffs(t, 16, turns)
	each := float64(sent) / turns
	t.Logf("%.1f statements for each hand-off", each)
	if each > 8 {
		t.Errorf("%.1f statements for each hand-off among 16 clients; waking all of them takes more than 20", each)
	}
}

// TestNobodyStarves: of eight clients, every one is served.
func TestNobodyStarves(t *testing.T) {
	served, _ := handOffs(t, 8, 200)
	t.Logf("turns: %v", served)
	for n, turns := range served {
		if turns == 0 {
			t.Errorf("client %d was never served: %v", n, served)
		}
	}
}
