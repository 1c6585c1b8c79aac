package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
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

// waitsFor makes a client wait for a key that another holds. It watches, and
// asks in vain, as contenders do.
func waitsFor(t *testing.T, st *postgres.Store, key string) <-chan struct{} {
	t.Helper()
	c, err := st.Watch(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a := one(t.Context(), st, claim(key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Fatalf("asking for a key that another holds: %v", a.Err)
	}
	return c
}

// beside returns another store in the same schema.
func beside(t *testing.T, schema string) *postgres.Store {
	t.Helper()
	st, _ := fresh(t, postgres.Options{Schema: schema})
	return st
}

// closes closes a store. It waits until the store has left all queues, however
// slow the machine is.
func closes(t *testing.T, st *postgres.Store) {
	t.Helper()
	postgres.LeavePatiently(st, testenv.Patience)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// wire is a connection that hears all notifications of a schema.
type wire struct {
	t    *testing.T
	conn *pgx.Conn
}

func listen(t *testing.T, schema string) *wire {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `LISTEN "`+schema+`.wake"`); err != nil {
		t.Fatal(err)
	}
	return &wire{t, conn}
}

// next returns the next notification that is not a listener's probe.
func (w *wire) next() string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
	defer cancel()
	for {
		note, err := w.conn.WaitForNotification(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		if !strings.HasPrefix(note.Payload, "\x01") {
			return note.Payload
		}
	}
}

// turn returns the client that the next notification names. It must be about
// key.
func (w *wire) turn(key string) (id string) {
	w.t.Helper()
	note := w.next()
	id, named, ok := strings.Cut(strings.TrimPrefix(note, "\x02"), " ")
	if !ok || !strings.HasPrefix(note, "\x02") || named != key {
		w.t.Fatalf("heard %q, want whose turn it is for %q", note, key)
	}
	return id
}

// TestOnlyAWaiterCostsANotification: without a waiter, changes notify nobody.
func TestOnlyAWaiterCostsANotification(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	mine := claim("watch/quiet", "ann")
	must(t, st, mine)
	heard := listen(t, name)
	must(t, st, then(tenure.Release, mine))
	must(t, st, claim(mine.Key, "bob"))
	waited := claim("watch/waited", "ann")
	must(t, st, waited)
	waiter, _ := fresh(t, postgres.Options{Schema: name})
	c := waitsFor(t, waiter, waited.Key)
	must(t, st, then(tenure.Release, waited))
	woken(t, c, "the release")
	heard.turn(waited.Key) // they come in order: nothing came before it
}

// TestAReleaseNamesWhoHasWaitedLongest: only that client is woken.
func TestAReleaseNamesWhoHasWaitedLongest(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	key := "watch/order"
	mine := claim(key, "ann")
	must(t, st, mine)
	heard := listen(t, name)
	var clients []*postgres.Store
	var hints []<-chan struct{}
	for range 3 {
		client := beside(t, name)
		clients = append(clients, client)
		hints = append(hints, waitsFor(t, client, key))
	}
	// A release and the next grant in one batch wake nobody.
	next := claim(key, "ann")
	for _, a := range st.Apply(t.Context(), []tenure.Request{then(tenure.Release, mine), next}) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	mine = next
	var ids []string
	for n := range clients {
		must(t, st, then(tenure.Release, mine))
		ids = append(ids, heard.turn(key))
		woken(t, hints[n], "its turn")
		mine = claim(key, "ann")
		got := must(t, clients[n], mine) // the client that was named takes it
		if n < 2 {
			if note := heard.next(); note != "\x03"+key {
				t.Errorf("heard %q, want that the key is taken", note)
			}
		}
		if got.Record.Owner != "ann" {
			t.Errorf("granted to %q", got.Record.Owner)
		}
	}
	if ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] {
		t.Errorf("three clients waited; named were %v", ids)
	}
}

// TestAWaiterThatAsksInVainKeepsItsPosition: a client that has not waited gets
// the key first. The named client asks in vain, and is named again.
func TestAWaiterThatAsksInVainKeepsItsPosition(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	key := "watch/vain"
	mine := claim(key, "ann")
	must(t, st, mine)
	heard := listen(t, name)
	longest, other := beside(t, name), beside(t, name)
	first := waitsFor(t, longest, key)
	waitsFor(t, other, key)
	must(t, st, then(tenure.Release, mine))
	id := heard.turn(key)
	woken(t, first, "its turn")
	mine = claim(key, "eve")
	must(t, st, mine)
	heard.next() // that it is taken
	if a := one(t.Context(), longest, claim(key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Fatal(a.Err)
	}
	must(t, st, then(tenure.Release, mine))
	if again := heard.turn(key); again != id {
		t.Errorf("named %s, want %s again: it has waited longest", again, id)
	}
}

// TestANamedClientThatDoesNotComeStallsNobody: the named client is dead,
// stopped or cut off. The others come by themselves.
func TestANamedClientThatDoesNotComeStallsNobody(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	mine := claim("watch/dead", "ann")
	must(t, st, mine)
	exec(t, "SELECT "+name+".wait_v1(1000, 'dead', $1, 60000)", []string{mine.Key})
	waiter, _ := fresh(t, postgres.Options{Schema: name})
	heard := listen(t, name)
	c := waitsFor(t, waiter, mine.Key)
	must(t, st, then(tenure.Release, mine))
	if id := heard.turn(mine.Key); id != "dead" {
		t.Fatalf("named %s", id)
	}
	woken(t, c, "the end of the grace")
	must(t, waiter, claim(mine.Key, "bob"))
}

// TestAClientThatWaitsNoMoreIsNotNamed: it steps out of the queue, whether its
// watch ends or the client is closed.
func TestAClientThatWaitsNoMoreIsNotNamed(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	mine := claim("watch/gone", "ann")
	must(t, st, mine)
	heard := listen(t, name)
	inQueue := func() int64 { return number(t, "SELECT count(*) FROM "+name+".waiter") }

	closed := beside(t, name)
	left := waitsFor(t, closed, mine.Key)
	leaves := beside(t, name)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := leaves.Watch(ctx, mine.Key); err != nil {
		t.Fatal(err)
	}
	if a := one(t.Context(), leaves, claim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Fatal(a.Err)
	}
	stays := beside(t, name)
	c := waitsFor(t, stays, mine.Key)
	if n := inQueue(); n != 3 {
		t.Fatalf("%d clients are in the queue, want 3", n)
	}
	closes(t, closed)
	for range left { // it may have been woken before; that it ends is the point
	}
	cancel()
	testenv.Eventually(t, "the others have left the queue", func() error {
		if n := inQueue(); n != 1 {
			return fmt.Errorf("%d are in the queue", n)
		}
		return nil
	})
	must(t, st, then(tenure.Release, mine))
	heard.turn(mine.Key)
	woken(t, c, "its turn")
}

// TestAThousandWaitersAreOne: for the server, all waiters of a client for a key
// are one, on one connection. After Close there is none.
func TestAThousandWaitersAreOne(t *testing.T) {
	t.Parallel()
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
	waitsFor(t, st, mine.Key)
	if n := listeners(); n != 1 {
		t.Errorf("1000 waiters of one client listen on %d connections", n)
	}
	if n := number(t, "SELECT count(*) FROM "+name+".waiter"); n != 1 {
		t.Errorf("1000 waiters for one key are %d in the database", n)
	}
	must(t, st, then(tenure.Release, mine))
	all.Wait()
	must(t, st, claim(mine.Key, "ann"))
	waitsFor(t, st, mine.Key)
	closes(t, st)
	if n := number(t, "SELECT count(*) FROM "+name+".waiter"); n != 0 {
		t.Errorf("%d waiters are left of a client that was closed", n)
	}
	testenv.Eventually(t, "the listening connection ends with its client", func() error {
		if listeners() != 0 {
			return errors.New("it is there")
		}
		return nil
	})
}

// TestAWatchThatBreaksSaysSo: its channel is closed, and the next watch listens
// again.
func TestAWatchThatBreaksSaysSo(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	mine := claim("watch/broken", "ann")
	must(t, st, mine)
	c, err := st.Watch(t.Context(), mine.Key)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN "'||$1::text||'.wake"%'`, name)
	patience := time.After(testenv.Patience)
	for open := true; open; { // a hint may come before the end
		select {
		case _, open = <-c:
		case <-patience:
			t.Fatal("the connection ended and the watch goes on")
		}
	}
	if c, err = st.Watch(t.Context(), mine.Key); err != nil {
		t.Fatal(err)
	}
	must(t, st, then(tenure.Release, mine))
	woken(t, c, "the release")
}

// TestAPoolerThatSwallowsNotificationsIsNoticed: LISTEN succeeds there, but
// nothing ever arrives. Waiters poll, and the log says so once.
func TestAPoolerThatSwallowsNotificationsIsNoticed(t *testing.T) {
	t.Parallel() // it waits for a notification that never comes
	shared(t)
	config, err := pgxpool.ParseConfig(server.url)
	if err != nil {
		t.Fatal(err)
	}
	// The connection that listens leads to another database than all others. It
	// hears as little as behind a pooler.
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
		if _, err := st.Acts(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Acts: %v, want ErrUnsupported", err)
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

// TestAReleaseSaysWhetherOthersWait: then its client lets them go first. The
// test releases alone, and in a batch that grants the key again.
func TestAReleaseSaysWhetherOthersWait(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	other, _ := fresh(t, postgres.Options{Schema: name})
	mine := claim("watch/awaited", "ann")
	must(t, st, mine)
	if a := must(t, st, then(tenure.Release, mine)); a.Awaited {
		t.Error("nobody waits, and the release says that somebody does")
	}
	mine = claim(mine.Key, "ann")
	must(t, st, mine)
	waitsFor(t, other, mine.Key)
	again := claim(mine.Key, "ann")
	answers := st.Apply(t.Context(), []tenure.Request{then(tenure.Release, mine), again})
	if answers[0].Err != nil || answers[1].Err != nil || !answers[0].Awaited {
		t.Errorf("in a batch: %v, %v, awaited %t", answers[0].Err, answers[1].Err, answers[0].Awaited)
	}
	if a := must(t, st, then(tenure.Release, again)); !a.Awaited {
		t.Error("another waits, and the release does not say so")
	}
}
