package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// woken waits for a wake-up.
func woken(t *testing.T, c <-chan struct{}, why string) {
	t.Helper()
	select {
	case _, open := <-c:
		if !open {
			t.Fatalf("the watch broke; %s should have woken it", why)
		}
	case <-time.After(testenv.Patience):
		t.Fatalf("not woken by %s", why)
	}
}

// TestOnlyAWaiterCostsANotification: without one, changes notify nobody.
func TestOnlyAWaiterCostsANotification(t *testing.T) {
	st, name := fresh(t, postgres.Options{})
	mine := claim("watch/quiet", "ann")
	must(t, st, mine)
	conn, err := pgx.Connect(t.Context(), server.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `LISTEN "`+name+`.wake"`); err != nil {
		t.Fatal(err)
	}
	must(t, st, then(tenure.Release, mine))
	must(t, st, claim(mine.Key, "bob"))
	waited := claim("watch/waited", "ann")
	must(t, st, waited)
	waiter, _ := fresh(t, postgres.Options{Schema: name})
	c, err := waiter.Watch(t.Context(), waited.Key)
	if err != nil {
		t.Fatal(err)
	}
	must(t, st, then(tenure.Release, waited))
	woken(t, c, "the release")
	for {
		note, err := conn.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(note.Payload, "\x01") { // the listener's own
			continue
		}
		if note.Payload != waited.Key {
			t.Errorf("%q notified, which nobody waits for", note.Payload)
			continue
		}
		return // they come in order: nothing came before it
	}
}

// TestAThousandWaitersAreOne: to the server, all waiters of a client for a key are one, on one connection.
func TestAThousandWaitersAreOne(t *testing.T) {
	st, name := fresh(t, postgres.Options{})
	mine := claim("watch/crowd", "ann")
	must(t, st, mine)
	listeners := func() int64 {
		return number(t, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN "'||$1::text||'.wake"%'`, name)
	}
	var all sync.WaitGroup
	ready := make(chan struct{}, 1000)
	for range 1000 {
		all.Go(func() {
			c, err := st.Watch(t.Context(), mine.Key)
			ready <- struct{}{}
			if err != nil {
				t.Errorf("Watch: %v", err)
				return
			}
			select {
			case <-c:
			case <-time.After(testenv.Patience):
				t.Error("a waiter was not woken")
			}
		})
	}
	for range 1000 {
		<-ready
	}
	if n := listeners(); n != 1 {
		t.Errorf("1000 waiters of one client listen on %d connections", n)
	}
	if n := number(t, "SELECT count(*) FROM "+name+".waiter"); n != 1 {
		t.Errorf("1000 waiters for one key are %d in the database", n)
	}
	must(t, st, then(tenure.Release, mine))
	all.Wait()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the listening connection ends with its client", func() error {
		if listeners() != 0 {
			return errors.New("it is there")
		}
		return nil
	})
}

// TestAWatchThatBreaksSaysSo: its channel is closed, and the next watch listens again.
func TestAWatchThatBreaksSaysSo(t *testing.T) {
	st, name := fresh(t, postgres.Options{})
	mine := claim("watch/broken", "ann")
	must(t, st, mine)
	c, err := st.Watch(t.Context(), mine.Key)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN "'||$1::text||'.wake"%'`, name)
	select {
	case _, open := <-c:
		if open {
			t.Error("woken by the end of the connection, not told of it")
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the connection ended and the watch goes on")
	}
	if c, err = st.Watch(t.Context(), mine.Key); err != nil {
		t.Fatal(err)
	}
	must(t, st, then(tenure.Release, mine))
	woken(t, c, "the release")
}

// TestAPoolerThatSwallowsNotificationsIsNoticed: LISTEN succeeds there and nothing ever arrives. Waiters poll, and it is said once.
func TestAPoolerThatSwallowsNotificationsIsNoticed(t *testing.T) {
	t.Parallel() // it waits for what does not come
	shared(t)
	config, err := pgxpool.ParseConfig(server.url)
	if err != nil {
		t.Fatal(err)
	}
	// The connection that listens is to another database than all others: what a pooler does to it is the same.
	var first sync.Once
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		first.Do(func() { c.Database = "postgres" })
		return nil
	}
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var said strings.Builder
	st := postgres.New(p, &postgres.Options{Schema: schema(), Log: slog.New(slog.NewTextHandler(&said, nil))})
	defer st.Close()
	for range 3 {
		if _, err := st.Watch(t.Context(), "watch/pooler"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Watch: %v, want ErrUnsupported", err)
		}
	}
	if n := strings.Count(said.String(), "level=WARN"); n != 1 {
		t.Errorf("said %d times: %s", n, said.String())
	}
	if a := one(t.Context(), st, claim("watch/pooler", "ann")); a.Err != nil {
		t.Errorf("acquiring all the same: %v", a.Err)
	}
}

var _ store.Watcher = (*postgres.Store)(nil)
