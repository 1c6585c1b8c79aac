package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// statements counts the statements that clients send.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// handOffs lets clients take turns at a key, one worker each. It ends after so
// many turns, when every client has had one. It returns the number of turns,
// the statements sent and the time taken. It fails the test if a round takes
// longer than twice the tests' patience.
func handOffs(t *testing.T, clients, turns int) (done, sent int64, took time.Duration) {
	t.Helper()
	shared(t)
	name := schema()
	counted := &statements{}
	served := make([]atomic.Int64, clients)
	var all []*croft.Client
	var stores []*postgres.Store
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
		st := postgres.New(p, &postgres.Options{Schema: name, SweepEvery: -1})
		stores = append(stores, st)
		c := croft.New(st, &croft.Options{Owner: fmt.Sprint("client ", n)})
		t.Cleanup(func() { c.Close(); st.Close() })
		all = append(all, c)
	}
	var had atomic.Int64
	run := func(upTo int) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*testenv.Patience)
		defer cancel()
		var workers sync.WaitGroup
		var unserved atomic.Int64
		unserved.Store(int64(clients))
		for n, c := range all {
			served[n].Store(0)
			workers.Go(func() {
				for had.Load() < int64(upTo) || unserved.Load() > 0 {
					l, err := c.Acquire(ctx, "handoff/key", &croft.LeaseOptions{WaitFor: croft.Forever})
					if err != nil {
						t.Errorf("client %d: %v", n, err)
						return
					}
					if served[n].Add(1) == 1 {
						unserved.Add(-1)
					}
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
	had.Store(0)
	before, began := counted.n.Load(), time.Now()
	run(turns)
	done, sent, took = had.Load(), counted.n.Load()-before, time.Since(began)
	t.Logf("%d turns in %s", done, took)
	if n := number(t, "SELECT count(*) FROM "+name+".waiter"); n > int64(clients) {
		t.Errorf("%d clients are %d in the list of those who wait", clients, n)
	}
	for n, c := range all {
		c.Close()
		closes(t, stores[n])
	}
	if n := number(t, "SELECT count(*) FROM "+name+".waiter WHERE NOT named"); n > 0 {
		t.Errorf("%d clients wait when all are closed", n)
	}
	return done, sent, took
}

// TestAHandOffCostsTheSameHoweverManyWait: a release wakes one client of
// sixteen, not all. Every client is served.
func TestAHandOffCostsTheSameHoweverManyWait(t *testing.T) {
	t.Parallel()
	const clients, turns = 16, 200
	done, sent, took := handOffs(t, clients, turns) // fails if one is never served
	t.Logf("%.1f statements for each hand-off", float64(sent)/float64(done))
	// Waking all of them takes more than 20 statements for each hand-off. On a
	// slow machine the client whose turn it is comes late. Then each other
	// client asks the server by itself, about ten times a second.
	if most := 8*done + 2*clients*int64(took/(100*time.Millisecond)); sent > most {
		t.Errorf("%d hand-offs among %d clients took %d statements in %s, want at most %d", done, clients, sent, took, most)
	}
	if done > turns+clients && took < time.Duration(done)*50*time.Millisecond {
		t.Errorf("somebody waited for more than %d turns, though each took only %s", turns, took/time.Duration(done))
	}
}
