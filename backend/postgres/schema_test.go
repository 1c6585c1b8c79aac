package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestFiftyFirstUsersMakeOneSchema: the first user makes it. No other user
// notices.
func TestFiftyFirstUsersMakeOneSchema(t *testing.T) {
	t.Parallel()
	shared(t)
	name := schema()
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 50 {
		st, err := store.Open(t.Context(), server.url+"&pool_max_conns=1&schema="+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		all.Go(func() {
			<-start
			mine := claim("first/"+string(claim("", "").Secret), "ann")
			if a := one(t.Context(), st, mine); a.Err != nil {
				t.Errorf("a first user: %v", a.Err)
			}
		})
	}
	close(start)
	all.Wait()
	if n := number(t, "SELECT count(*) FROM "+name+".lease"); n != 50 {
		t.Errorf("50 users left %d records", n)
	}
	if n, want := number(t, "SELECT count(*) FROM "+name+".migration"), int64(postgres.Migrations()); n != want {
		t.Errorf("%d migrations were noted, want %d", n, want)
	}
}

// TestARoleThatMayNotCreateUsesWhatADBAHasMade: the DBA uses the text that
// `croft schema postgres` prints, and grants the rights that it names.
func TestARoleThatMayNotCreateUsesWhatADBAHasMade(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	database := strings.TrimPrefix(mustParse(t, pg.Database(t)).Path, "/")
	role := "limited_" + database
	pg.Query(t, database, "CREATE ROLE "+role+" LOGIN")
	address := strings.Replace(pg.URL(database), "postgres://postgres@", "postgres://"+role+"@", 1)

	st, err := store.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	a := one(t.Context(), st, claim("role/before", "ann"))
	if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "croft schema postgres") {
		t.Errorf("without a schema and without the right to make one: %v; want unknown, and what to do", a.Err)
	}

	text := postgres.Schema()
	pg.Query(t, database, text)
	for line := range strings.Lines(text) {
		if grant, ok := strings.CutPrefix(line, "--   GRANT"); ok {
			pg.Query(t, database, "GRANT"+strings.Replace(grant, "TO app", "TO "+role, 1))
		}
	}
	mine := claim("role/after", "ann")
	must(t, st, mine)
	must(t, st, then("renew", mine))
	must(t, st, then("release", mine))
	if _, err := st.(store.Sweeper).Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if _, err := st.(store.Watcher).Watch(t.Context(), mine.Key); err != nil {
		t.Errorf("Watch: %v", err)
	}
	if _, err := st.Get(t.Context(), mine.Key); err != nil {
		t.Errorf("Get: %v", err)
	}
	p := pool(t, address)
	defer p.Close()
	g, err := postgres.NewGuard(p, postgres.FenceRow{Name: "row"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Raise(context.WithoutCancel(t.Context()), stampOf(10, 1)); err != nil {
		t.Errorf("Raise: %v", err)
	}
}

// TestASchemaThatWasDroppedIsMadeAgain: a store survives the loss of its
// schema.
func TestASchemaThatWasDroppedIsMadeAgain(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	before := must(t, st, claim("dropped", "ann"))
	exec(t, "DROP SCHEMA "+name+" CASCADE")
	after := storetest.Resolve(t.Context(), st, claim("dropped", "bob"))
	if after.Err != nil || after.Record.Token <= before.Record.Token {
		t.Errorf("after the schema was dropped: %v, token %d after %d", after.Err, after.Record.Token, before.Record.Token)
	}
}

func TestABadURLIsNamed(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"postgres://user:hunter2@host/db?retention=soon", "postgres://user:hunter2@host/db?schema=a%22b", "postgres://user:hunter2@host/db#guard",
		"postgres://user:hunter2@host:port/db", "postgres://user:hunter2@host/db?lock_wait=0s", "postgres://user:hunter2@host/db?sslmode=perhaps",
	} {
		_, err := store.Open(t.Context(), raw)
		if !errors.Is(err, fence.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want invalid, without the password", raw, err)
		}
	}
}

func mustParse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestWaitersForTheSchemaSeeIt: some server processes have looked for the
// schema and remember that it was missing. They do not fail after another
// process has made it.
func TestWaitersForTheSchemaSeeIt(t *testing.T) {
	t.Parallel()
	p := shared(t)
	for range 5 {
		name := schema()
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 10 {
			st := postgres.New(p, &postgres.Options{Schema: name})
			t.Cleanup(func() { st.Close() })
			all.Go(func() {
				<-start
				if a := one(t.Context(), st, claim("first/"+string(claim("", "").Secret), "ann")); a.Err != nil {
					t.Errorf("a first user: %v", a.Err)
				}
			})
		}
		close(start)
		all.Wait()
	}
}

// TestEveryWayToSendAStatementWorks: behind a pooler the driver must not
// prepare statements.
func TestEveryWayToSendAStatementWorks(t *testing.T) {
	t.Parallel()
	shared(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			p := pool(t, server.url+"&default_query_exec_mode="+mode)
			defer p.Close()
			name := schema()
			st := postgres.New(p, &postgres.Options{Schema: name})
			defer st.Close()
			one, two := claim("mode/1", "ann"), claim("mode/2", `b'o"b\`)
			one.Guards = []string{`a'b"c\d`}
			for _, requests := range [][]tenure.Request{{one, two}, {then(tenure.Renew, one), then(tenure.Report, two)}, {then(tenure.Release, one)}, {claim(two.Key, "bob")}} {
				for i, a := range st.Apply(t.Context(), requests) {
					if a.Err != nil && !errors.Is(a.Err, tenure.ErrHeld) {
						t.Errorf("%s: %v", requests[i].Verb, a.Err)
					}
				}
			}
			if rec, err := st.Get(t.Context(), two.Key); err != nil || rec.Owner != two.Owner {
				t.Errorf("Get: %+v, %v", rec, err)
			}
			for _, err := range st.List(t.Context(), "mode/") {
				if err != nil {
					t.Errorf("List: %v", err)
				}
			}
			if _, err := st.Sweep(t.Context()); err != nil {
				t.Errorf("Sweep: %v", err)
			}
			if _, err := st.Watch(t.Context(), one.Key); err != nil {
				t.Errorf("Watch: %v", err)
			}
			if _, err := st.Examine(t.Context()); err != nil {
				t.Errorf("Examine: %v", err)
			}
			g, err := postgres.NewGuard(p, postgres.FenceRow{Name: "row"}, &postgres.GuardOptions{Schema: name})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Raise(t.Context(), stampOf(10, 1)); err != nil {
				t.Errorf("Raise: %v", err)
			}
			if _, err := g.Rekey(t.Context(), "other", "ann", "why"); err != nil {
				t.Errorf("Rekey: %v", err)
			}
		})
	}
}

// TestWaitersForTheSchemaMayLeave: one call of a client waits until it can
// make the schema. Another call whose context ends returns meanwhile.
func TestWaitersForTheSchemaMayLeave(t *testing.T) {
	t.Parallel()
	p := shared(t)
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	name := schema()
	if _, err := tx.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil { // somebody else is at it
		t.Fatal(err)
	}
	st := postgres.New(p, &postgres.Options{Schema: name})
	defer st.Close()
	first := make(chan store.Answer, 1)
	go func() { first <- one(t.Context(), st, claim("schema/first", "ann")) }()
	waits(t, name, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := make(chan store.Answer, 1)
	go func() { second <- one(ctx, st, claim("schema/second", "ann")) }()
	select {
	case a := <-second:
		if !errors.Is(a.Err, store.ErrUnknown) {
			t.Errorf("a call whose context has ended: %v", a.Err)
		}
	case a := <-first:
		t.Errorf("the call that waits for another has its answer (%v), and the one whose context has ended long ago has none", a.Err)
	case <-time.After(testenv.Patience / 2):
		t.Error("a call whose context has ended does not return")
	}
	_ = tx.Rollback(t.Context())
	if a := <-first; a.Err != nil {
		t.Errorf("the call that waited: %v", a.Err)
	}
}
