package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func acquire(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, Instance: "bench/1", TTL: time.Minute}
}

func then(verb tenure.Verb, req tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: req.Key, Secret: req.Secret}
}

func one(st store.Store, req tenure.Request) store.Answer {
	return st.Apply(context.Background(), []tenure.Request{req})[0]
}

// term acquires a key and releases it.
func term(tb testing.TB, st store.Store, key string) {
	req := acquire(key, "ann@example.com")
	for _, req := range []tenure.Request{req, then(tenure.Release, req)} {
		if a := one(st, req); a.Err != nil {
			tb.Fatal(a.Err)
		}
	}
}

// floor commits a bare upsert with the same durability.
type floor struct {
	db   *sql.DB
	stmt *sql.Stmt
	n    atomic.Int64
}

func newFloor(tb testing.TB) *floor {
	db, err := connections(filepath.Join(tb.TempDir(), "floor.db"), 10*time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	var mode string
	if err := db.QueryRow("PRAGMA journal_mode = WAL").Scan(&mode); err != nil || mode != "wal" {
		tb.Fatal(mode, err)
	}
	if _, err := db.Exec("CREATE TABLE t (key TEXT PRIMARY KEY, n INTEGER, v BLOB)"); err != nil {
		tb.Fatal(err)
	}
	stmt, err := db.Prepare("INSERT INTO t VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET n = excluded.n, v = excluded.v")
	if err != nil {
		tb.Fatal(err)
	}
	return &floor{db: db, stmt: stmt}
}

var payload = make([]byte, 200)

// warm is how many commits it takes until the log has its usual size and need
// not grow.
const warm = 1200

func (f *floor) commit(tb testing.TB, key string) {
	if _, err := f.stmt.Exec(key, f.n.Add(1), payload); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkLoneTerm acquires and releases a key with a full history, and in
// turn makes two bare commits. It reports the ratio of the medians.
func BenchmarkLoneTerm(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "croft.db"), nil)
	defer st.Close()
	f := newFloor(b)
	for range warm / 2 {
		term(b, st, "bench/key")
		f.commit(b, "bench/key")
		f.commit(b, "bench/key")
	}
	var ours, bare []time.Duration
	for b.Loop() {
		start := time.Now()
		term(b, st, "bench/key")
		ours = append(ours, time.Since(start))
		start = time.Now()
		f.commit(b, "bench/key")
		f.commit(b, "bench/key")
		bare = append(bare, time.Since(start))
	}
	slices.Sort(ours)
	slices.Sort(bare)
	b.ReportMetric(float64(ours[len(ours)/2].Microseconds()), "term-µs")
	b.ReportMetric(float64(bare[len(bare)/2].Microseconds()), "floor-µs")
	b.ReportMetric(float64(ours[len(ours)/2])/float64(bare[len(bare)/2]), "ratio")
}

// BenchmarkManyTerms does so with 64 goroutines on keys of their own, and
// compares with 64 that commit one by one. It reports the ratio of throughputs.
func BenchmarkManyTerms(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "croft.db"), nil)
	defer st.Close()
	f := newFloor(b)
	const workers = 64
	run := func(count int, do func(worker int)) time.Duration {
		start := time.Now()
		var left atomic.Int64
		left.Store(int64(count))
		var all sync.WaitGroup
		for n := range workers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					do(n)
				}
			})
		}
		all.Wait()
		return time.Since(start)
	}
	ours := func(count int) time.Duration {
		return run(count, func(n int) { term(b, st, fmt.Sprintf("bench/%d", n)) })
	}
	bare := func(count int) time.Duration {
		return run(count, func(n int) { key := fmt.Sprintf("bench/%d", n); f.commit(b, key); f.commit(b, key) })
	}
	ours(workers * tenure.HistoryLen)
	bare(warm / 2)
	var t1, t2 time.Duration
	n := 0
	for b.Loop() {
		t1 += ours(1600)
		t2 += bare(200)
		n++
	}
	b.ReportMetric(float64(2*1600*n)/t1.Seconds(), "op/s")
	b.ReportMetric(float64(2*200*n)/t2.Seconds(), "floor-op/s")
	b.ReportMetric(8*t2.Seconds()/t1.Seconds(), "ratio")
}
