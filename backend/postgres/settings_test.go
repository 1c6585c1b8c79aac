package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestStricterDefaultLevelsChangeNothing: the role's default is not READ
// COMMITTED. The server fails calls that meet others, and the store sends them
// again.
func TestStricterDefaultLevelsChangeNothing(t *testing.T) {
	t.Parallel()
	shared(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			p := pool(t, server.url+"&pool_max_conns=8&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20"))
			defer p.Close()
			st := postgres.New(p, &postgres.Options{Schema: schema(), LockWait: testenv.Patience, SweepEvery: -1})
			defer st.Close()
			var all sync.WaitGroup
			var mu sync.Mutex
			tokens := map[string]bool{}
			for n := range 8 {
				all.Go(func() {
					for turn := 0; turn < 20; {
						mine := claim("strict/key", fmt.Sprint("client ", n))
						a := one(t.Context(), st, mine)
						if errors.Is(a.Err, tenure.ErrHeld) {
							continue
						}
						if a.Err != nil {
							t.Errorf("acquire: %v", a.Err)
							return
						}
						mu.Lock()
						token := fmt.Sprint(a.Record.Token)
						if tokens[token] {
							t.Errorf("token %s was granted twice", token)
						}
						tokens[token] = true
						mu.Unlock()
						if a := one(t.Context(), st, then(tenure.Release, mine)); a.Err != nil {
							t.Errorf("release: %v", a.Err)
							return
						}
						turn++
					}
				})
			}
			all.Wait()
			if f := examined(t, st)["isolation"]; f.Level != store.Warn {
				t.Errorf("the doctor says of %s: %+v", level, f)
			}
		})
	}
}

// TestABatchThatWouldDeadlockIsAskedForAgain: two clients create the same keys
// in different orders and wait for each other. The server ends one of them. Its
// requests still get their answers.
func TestABatchThatWouldDeadlockIsAskedForAgain(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: testenv.Patience})
	must(t, st, claim("deadlock/model", "ann"))
	ctx := t.Context()
	tx, err := shared(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	enter := func(key string) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %[1]s.lease SELECT (jsonb_populate_record(l, jsonb_build_object('key', $1::text))).* FROM %[1]s.lease l WHERE l.key = 'deadlock/model' ON CONFLICT DO NOTHING`, name), key)
		return err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL deadlock_timeout = '1min'"); err != nil { // the other notices it
		t.Fatal(err)
	}
	if err := enter("deadlock/2"); err != nil {
		t.Fatal(err)
	}
	answers := make(chan []store.Answer, 1)
	go func() {
		answers <- st.Apply(ctx, []tenure.Request{claim("deadlock/1", "ann"), claim("deadlock/2", "ann"), claim("deadlock/3", "ann")})
	}()
	waits(t, name, 1)
	if err := enter("deadlock/1"); err != nil { // returns when the server has ended the other, which may be back with this key before that
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	for i, a := range <-answers {
		if a.Err != nil {
			t.Errorf("request %d: %v", i, a.Err)
		}
	}
}

// TestAStatementTimeoutIsUnknown: the error names the timeout.
func TestAStatementTimeoutIsUnknown(t *testing.T) {
	t.Parallel()
	near, name := fresh(t, postgres.Options{})
	mine := claim("settings/timeout", "ann")
	must(t, near, mine)
	letGo := blocked(t, name, mine.Key)
	p := pool(t, server.url+"&statement_timeout=100ms")
	defer p.Close()
	st := postgres.New(p, &postgres.Options{Schema: name, LockWait: testenv.Patience})
	defer st.Close()
	for _, req := range []tenure.Request{then(tenure.Renew, mine), then(tenure.Release, mine)} {
		if a := one(t.Context(), st, req); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "statement_timeout") {
			t.Errorf("%s: %v; want unknown, and why", req.Verb, a.Err)
		}
	}
	letGo()
	// On a busy machine any statement may take longer than this role allows.
	if a := storetest.Resolve(t.Context(), st, then(tenure.Release, mine)); a.Err != nil {
		t.Errorf("the release, when nothing is in its way: %v", a.Err)
	}
}

// TestASearchPathChangesNothing: names mean Croft's own objects, whatever comes
// first in the path.
func TestASearchPathChangesNothing(t *testing.T) {
	t.Parallel()
	shared(t)
	trap := "trap_" + schema()
	exec(t, fmt.Sprintf(`CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.lease (key text, x int); CREATE TABLE %[1]s.past (x int); CREATE TABLE %[1]s.waiter (x int);
		CREATE FUNCTION %[1]s.now_us() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'`, trap))
	p := pool(t, server.url+"&search_path="+trap)
	defer p.Close()
	st := postgres.New(p, &postgres.Options{Schema: schema()})
	defer st.Close()
	mine := claim("settings/path", "ann")
	must(t, st, mine)
	must(t, st, then(tenure.Renew, mine))
	must(t, st, then(tenure.Release, mine))
	if _, err := st.Get(t.Context(), mine.Key); err != nil {
		t.Error(err)
	}
	if _, err := st.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestACallThatIsCalledOffLeavesNothingBehind: the pool counts no lost
// connection, and the server does not go on with the statement.
func TestACallThatIsCalledOffLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	near, name := fresh(t, postgres.Options{})
	mine := claim("settings/cancel", "ann")
	must(t, near, mine)
	letGo := blocked(t, name, mine.Key)
	defer letGo()
	p := pool(t, server.url+"&pool_max_conns=2")
	defer p.Close()
	st := postgres.New(p, &postgres.Options{Schema: name, LockWait: testenv.Patience})
	defer st.Close()
	for range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan store.Answer, 1)
		go func() { answer <- one(ctx, st, then(tenure.Renew, mine)) }()
		waits(t, name, 1)
		cancel()
		if a := <-answer; !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.Canceled) {
			t.Errorf("called off: %v", a.Err)
		}
		testenv.Eventually(t, "the server stops", func() error {
			if n := number(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1::text||'.%'", name); n > 0 {
				return fmt.Errorf("%d wait", n)
			}
			return nil
		})
	}
	testenv.Eventually(t, "connections are let go", func() error {
		if n := p.Stat().AcquiredConns(); n > 0 {
			return fmt.Errorf("%d are in use", n)
		}
		return nil
	})
}

// TestAPoolThatIsUsedUpIsUnknown: the caller keeps all connections. A request
// fails when its context ends.
func TestAPoolThatIsUsedUpIsUnknown(t *testing.T) {
	t.Parallel()
	_, name := fresh(t, postgres.Options{})
	p := pool(t, server.url+"&pool_max_conns=1")
	defer p.Close()
	st := postgres.New(p, &postgres.Options{Schema: name})
	defer st.Close()
	conn, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a := one(ctx, st, claim("settings/pool", "ann")); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("without a connection: %v", a.Err)
	}
	conn.Release()
	must(t, st, claim("settings/pool", "ann"))
}

// TestAStoreFollowsItsPrimary: the store gives up connections to a server that
// has become read-only. New connections go where the URL leads.
func TestAStoreFollowsItsPrimary(t *testing.T) {
	t.Parallel()
	old := testenv.NewPostgres(t)
	hosts := func(a, b *testenv.PostgresServer) string {
		return fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", a.Addr(), b.Addr())
	}
	first, err := postgres.Open(t.Context(), old.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	must(t, first, claim("failover/made", "ann"))
	standby := old.Standby(t)
	st, err := postgres.Open(t.Context(), hosts(old, standby))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	mine := claim("failover/key", "ann")
	before := must(t, st, mine)
	hints, err := st.Watch(t.Context(), mine.Key)
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := postgres.OpenLedger(t.Context(), hosts(old, standby))
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	wakes, err := ledger.Wake(t.Context(), work.Wanted{Queues: []string{"failover"}})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the standby has it", func() error {
		if n := standby.Query(t, "postgres", "SELECT count(*) FROM croft.lease WHERE key = 'failover/key'"); n != "1" {
			return errors.New("not yet")
		}
		return nil
	})
	standby.Query(t, "postgres", "SELECT pg_promote()")
	old.Query(t, "postgres", "ALTER SYSTEM SET default_transaction_read_only = on")
	old.Query(t, "postgres", "SELECT pg_reload_conf()")
	testenv.Eventually(t, "the store finds the new primary", func() error {
		next := claim("failover/"+string(tenure.NewSecret()), "ann")
		if a := one(t.Context(), st, next); a.Err != nil {
			return a.Err
		}
		if standby.Query(t, "postgres", "SELECT count(*) FROM croft.lease WHERE key = '"+next.Key+"'") != "1" {
			return errors.New("the old primary still takes changes")
		}
		return nil
	})
	if a := must(t, st, then(tenure.Renew, mine)); a.Record.Token != before.Record.Token {
		t.Errorf("token %d, was %d", a.Record.Token, before.Record.Token)
	}
	there, err := postgres.OpenLedger(t.Context(), standby.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if a := there.Apply(t.Context(), []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "failover"}})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	testenv.Eventually(t, "the ledger finds the new primary", func() error { // the old primary would say that there is no work
		items, err := ledger.Claim(t.Context(), work.Claim{Queues: []string{"failover"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute})
		if err == nil && len(items) == 0 {
			return errors.New("it finds nothing")
		}
		return err
	})
	for name, c := range map[string]<-chan struct{}{"watch": hints, "wake": wakes} {
		testenv.Eventually(t, "the "+name+" breaks: nothing more is heard from the old primary", func() error {
			select {
			case _, open := <-c:
				if !open {
					return nil
				}
			default:
			}
			return errors.New("it goes on")
		})
	}
	if _, err := st.Watch(t.Context(), mine.Key); err != nil {
		t.Fatal(err)
	}
	if n := standby.Query(t, "postgres", `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN "croft.wake"%'`); n != "1" {
		t.Errorf("%s connections listen at the new primary", n)
	}
	must(t, st, then(tenure.Release, mine))
}

// TestAPreparedStatementThatIsLostIsExplained: behind a transaction pooler the
// next statement may go to a server process that has not prepared it.
func TestAPreparedStatementThatIsLostIsExplained(t *testing.T) {
	t.Parallel()
	_, name := fresh(t, postgres.Options{})
	p := pool(t, server.url+"&pool_max_conns=1")
	defer p.Close()
	st := postgres.New(p, &postgres.Options{Schema: name})
	defer st.Close()
	must(t, st, claim("settings/prepared", "ann"))
	if _, err := p.Exec(t.Context(), "DEALLOCATE ALL", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	a := one(t.Context(), st, claim("settings/prepared/2", "ann"))
	if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("%v; want unknown, and what to do", a.Err)
	}
	if a := storetest.Resolve(t.Context(), st, claim("settings/prepared/2", "ann")); a.Err != nil {
		t.Errorf("asked again: %v", a.Err)
	}
}

// TestNoKeyIsLookedForInAWholeTable: while a table is small, reading all of it
// is cheapest. Such a plan must not stay when the table has grown.
func TestNoKeyIsLookedForInAWholeTable(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{SweepEvery: -1})
	mine := claim("settings/plan", "ann")
	must(t, st, mine)
	must(t, st, then(tenure.Release, mine))
	for _, table := range []string{"lease", "past", "waiter"} {
		exec(t, "VACUUM ANALYZE "+name+"."+table)
	}
	err := pgx.BeginFunc(t.Context(), shared(t), func(tx pgx.Tx) error {
		scans := func() (n int64, err error) {
			err = tx.QueryRow(t.Context(), "SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_xact_user_tables WHERE schemaname = $1", name).Scan(&n)
			return n, err
		}
		before, err := scans() // the scans of earlier statements
		if err != nil {
			return err
		}
		for range 10 { // plans are made for good after some
			grant := string(tenure.NewSecret().Grant())
			for _, call := range []string{"acquire_v1(NULL, 1000, 1000, 'settings/plan', $1, 'ann', '', 60000000, '', '')", "release_v1(NULL, 1000, 'settings/plan', $1, false)"} {
				var answer string
				if err := tx.QueryRow(t.Context(), "SELECT "+name+"."+call, grant).Scan(&answer); err != nil {
					return err
				}
			}
		}
		after, err := scans()
		if after > before {
			t.Errorf("tables were read as a whole %d times", after-before)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
