package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func workClaim(queue string, n int) work.Claim {
	return work.Claim{Queues: []string{queue}, Limit: n, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
}

// TestALedgerOfAnOlderVersionGetsRules: the items of an older schema are
// claimed, and new ones may have partitions. Clients of the older version go
// on: they add items, and find nothing in queues that have rules or partitions.
func TestALedgerOfAnOlderVersionGetsRules(t *testing.T) {
	t.Parallel()
	o := olderSchema(t)
	old := work.NewID()
	insert := func(id work.ID, queue string) string {
		return fmt.Sprintf(`SET search_path = pg_catalog; INSERT INTO croft.item SELECT n.*
			FROM json_populate_recordset(NULL::croft.item, '[{"id": "%s", "queue": "%s", "state": "waiting", "priority": 0,
			"attempts": 0, "tries": 3, "generation": 0, "ready": 1, "created": 1, "terms": 0, "owner": "", "instance": "",
			"held": "", "cause": "", "ended": "", "actor": "", "note": "", "progress": "", "error": ""}]') AS n`, id, queue)
	}
	o.pg.Query(t, o.name, insert(old, "q"))
	p := pool(t, o.url)
	defer p.Close()
	l := postgres.NewLedger(p, nil)
	defer l.Close()
	add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q", Partition: "p"}
	if a := l.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	got, err := l.Claim(t.Context(), workClaim("q", 5))
	if err != nil || len(got) != 2 || got[0].ID != old || got[1].Partition != "p" {
		t.Fatalf("a claim got %+v, and %v", got, err)
	}
	later := work.NewID()
	o.pg.Query(t, o.name, insert(later, "later"))
	if got, err := l.Claim(t.Context(), workClaim("later", 5)); err != nil || len(got) != 1 || got[0].ID != later {
		t.Fatalf("what an older client has added: %+v, %v", got, err)
	}
	if _, err := l.Govern(t.Context(), work.RuleChange{Verb: work.Pause, Queue: "shut", Actor: "a", Note: "n"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"shut", "open"} {
		o.pg.Query(t, o.name, insert(work.NewID(), q))
	}
	n := o.pg.Query(t, o.name, `SET search_path = pg_catalog; SELECT count(*) FROM croft.claim_v1(
		NULL, '["shut", "open"]', 5, '`+string(tenure.NewSecret())+`', 'old', '', 60000000, false, false)`)
	if n != "1" {
		t.Errorf("a claim of an older client got %s items, want that of the queue that is open", n)
	}
}

// TestARuleWaitsForTheClaimsUnderWay: a claim in the caller's transaction knows
// of no limit, so the limit waits for it. It then counts what the claim took.
func TestARuleWaitsForTheClaimsUnderWay(t *testing.T) {
	t.Parallel()
	p := pool(t, testenv.Postgres(t).Database(t))
	defer p.Close()
	l := postgres.NewLedger(p, &postgres.LedgerOptions{LockWait: testenv.Patience})
	defer l.Close()
	var adds []work.Request
	for range 4 {
		adds = append(adds, work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"})
	}
	for _, a := range l.Apply(t.Context(), adds) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.In(tx).Claim(t.Context(), workClaim("q", 3)); err != nil || len(got) != 3 {
		t.Fatal(len(got), err)
	}
	set := make(chan error, 1)
	go func() {
		_, err := l.Govern(t.Context(), work.RuleChange{
			Verb: work.SetLimit, Queue: "q", Limit: work.Limit{Running: 3}, Actor: "a", Note: "n",
		})
		set <- err
	}()
	waiting := func() bool {
		var n int
		err := p.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n)
		return err == nil && n > 0
	}
	for !waiting() {
		select {
		case err := <-set:
			t.Fatalf("the limit was set while a claim was under way: %v", err)
		default:
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	if got, err := l.Claim(t.Context(), workClaim("q", 1)); err != nil || len(got) != 0 {
		t.Fatalf("three run and three may; a claim got %d, and %v", len(got), err)
	}
}

// TestAPauseThatWaitsLetsClaimsPass: a pause waits for the claim in a long
// transaction. Claims from other queues must not wait with it.
func TestAPauseThatWaitsLetsClaimsPass(t *testing.T) {
	t.Parallel()
	p := pool(t, testenv.Postgres(t).Database(t))
	defer p.Close()
	l := postgres.NewLedger(p, &postgres.LedgerOptions{LockWait: 10 * testenv.Patience})
	defer l.Close()
	addTo(t, l, "q")
	addTo(t, l, "other")
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if got, err := l.In(tx).Claim(t.Context(), workClaim("q", 1)); err != nil || len(got) != 1 {
		t.Fatal(len(got), err)
	}
	set := make(chan error, 1)
	go func() {
		_, err := l.Govern(t.Context(), work.RuleChange{Verb: work.Pause, Queue: "q", Actor: "a", Note: "n"})
		set <- err
	}()
	waitForLock(t, p, "advisory")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if got, err := l.Claim(ctx, workClaim("other", 1)); err != nil || len(got) != 1 {
		t.Errorf("a claim beside a pause that waits got %d items, and %v", len(got), err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-set; err != nil {
		t.Error(err)
	}
}

// TestAnOldSnapshotHidesNoRule: a transaction with one snapshot may have begun
// before a queue was paused. A claim in it must not get the items.
func TestAnOldSnapshotHidesNoRule(t *testing.T) {
	t.Parallel()
	p := pool(t, testenv.Postgres(t).Database(t))
	defer p.Close()
	l := postgres.NewLedger(p, nil)
	defer l.Close()
	addTo(t, l, "q")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := p.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM croft.item"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Govern(t.Context(), work.RuleChange{Verb: work.Pause, Queue: "q", Actor: "a", Note: "n"}); err != nil {
			t.Fatal(err)
		}
		if got, err := l.In(tx).Claim(t.Context(), workClaim("q", 1)); err == nil {
			t.Errorf("%s: a claim from a paused queue got %d items and no error", level, len(got))
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Govern(t.Context(), work.RuleChange{Verb: work.Resume, Queue: "q", Actor: "a", Note: "n"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAddsLockPartitionsInOneOrder: otherwise two batches that add to the same
// new partitions would deadlock. An add that waits for one partition has not
// yet locked those behind it.
func TestAddsLockPartitionsInOneOrder(t *testing.T) {
	t.Parallel()
	p := pool(t, testenv.Postgres(t).Database(t))
	defer p.Close()
	l := postgres.NewLedger(p, nil)
	defer l.Close()
	addTo(t, l, "q")
	begin := func() pgx.Tx {
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '60s'"); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	add := func(partition string, id work.ID) work.Request {
		return work.Request{Verb: work.Add, ID: id, Queue: "q", Partition: partition}
	}
	first, second := begin(), begin()
	if a := l.In(first).Apply(t.Context(), []work.Request{add("b", work.NewID())})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	low, high := work.NewID(), work.NewID()
	if high < low {
		low, high = high, low
	}
	done := make(chan error, 1)
	go func() {
		answers := l.In(second).Apply(t.Context(), []work.Request{add("c", low), add("b", high)})
		done <- errors.Join(answers[0].Err, answers[1].Err, second.Commit(t.Context()))
	}()
	waitForLock(t, p, "transactionid")
	third := begin()
	if _, err := third.Exec(t.Context(), "SET LOCAL lock_timeout = '300ms'"); err != nil {
		t.Fatal(err)
	}
	if a := l.In(third).Apply(t.Context(), []work.Request{add("c", work.NewID())})[0]; a.Err != nil {
		t.Errorf("a batch that waits for partition b has locked c: %v", a.Err)
	}
	for _, tx := range []pgx.Tx{third, first} {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func addTo(t *testing.T, l *postgres.Ledger, queue string) {
	t.Helper()
	if a := l.Apply(t.Context(), []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: queue}})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
}

// waitForLock waits until somebody waits for a lock of this type.
func waitForLock(t *testing.T, p *pgxpool.Pool, kind string) {
	t.Helper()
	for n := 0; n == 0; {
		err := p.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = $1 AND NOT granted
			AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())`, kind).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkClaimByPartitions claims 10 items of 20,000, in few and in many
// partitions, and gives them back. One partition has 10,000 items.
func BenchmarkClaimByPartitions(b *testing.B) {
	for _, partitions := range []int{0, 1, 10, 10000} {
		for _, limit := range []int{0, 5} {
			if partitions == 0 && limit > 0 {
				continue
			}
			b.Run(fmt.Sprintf("%d partitions/limit %d", partitions, limit), func(b *testing.B) {
				p := pool(b, testenv.Postgres(b).Database(b))
				defer p.Close()
				l := postgres.NewLedger(p, nil)
				defer l.Close()
				if _, err := l.Stats(b.Context(), ""); err != nil {
					b.Fatal(err)
				}
				names := []string{"''", "''"}
				if partitions > 0 {
					names = []string{"'tenant 0'", fmt.Sprintf("'tenant ' || n %% %d", partitions)}
				}
				for _, name := range names {
					if _, err := p.Exec(b.Context(), `INSERT INTO croft.item (id, queue, partition, state, priority, tries, ready, created)
						SELECT gen_random_uuid(), 'q', `+name+`, 'waiting', 0, 10, n, n FROM generate_series(1, 10000) AS n`); err != nil {
						b.Fatal(err)
					}
				}
				if limit > 0 {
					if _, err := l.Govern(b.Context(), work.RuleChange{
						Verb: work.SetLimit, Queue: "q", Partition: work.EachPartition, Actor: "a", Note: "n",
						Limit: work.Limit{Running: limit},
					}); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					c := workClaim("q", 10)
					got, err := l.Claim(b.Context(), c)
					if err != nil || len(got) == 0 {
						b.Fatal(len(got), err)
					}
					b.StopTimer()
					back := make([]work.Request, len(got))
					for i, it := range got {
						back[i] = work.Request{Verb: work.Release, ID: it.ID, Token: it.Record.Token, Secret: c.Secret}
					}
					l.Apply(b.Context(), back)
					b.StartTimer()
				}
			})
		}
	}
}
