package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

func claimOf(queue string, n int) work.Claim {
	return work.Claim{Queues: []string{queue}, Limit: n, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
}

// TestALedgerOfAnOlderVersionGetsRules: a file that version 3 made keeps its
// items. They are claimed, and new items may have partitions.
func TestALedgerOfAnOlderVersionGetsRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(memoryDir(t), "old.db")
	db, err := connections(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(text string) {
		t.Helper()
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	exec(fmt.Sprintf("PRAGMA journal_mode = WAL; PRAGMA application_id = %d", applicationID))
	exec(sqlPrepare)
	for _, m := range migrations()[:3] {
		exec(m.text)
		exec(fmt.Sprintf("INSERT INTO croft_migration (version, name) VALUES (%d, '%s')", m.version, m.name))
	}
	waiting, done := work.NewID(), work.NewID()
	for id, state := range map[work.ID]string{waiting: "waiting", done: "done"} {
		exec(fmt.Sprintf(`INSERT INTO croft_item (
				id, queue, state, priority, ready, created, finished, attempts, tries, generation, error,
				owner, instance, held, cause, ended, actor, note, progress, terms)
			VALUES ('%s', 'q', '%s', 0, 1, 1, nullif('%[2]s', 'waiting') IS NOT NULL, 0, 3, 0, '', '', '', '', '', '', '', '', '', 0)`, id, state))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLedger(t.Context(), path, &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q", Partition: "p"}
	if a := l.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	got, err := l.Claim(t.Context(), claimOf("q", 5))
	if err != nil || len(got) != 2 || got[0].ID != waiting || got[0].Partition != "" || got[1].Partition != "p" {
		t.Fatalf("a claim got %+v, and %v", got, err)
	}
	if _, err := l.Govern(t.Context(), work.RuleChange{Verb: work.Pause, Queue: "q", Actor: "a", Note: "n"}); err != nil {
		t.Fatal(err)
	}
}

// TestPartitionsInWhichNothingWaitsAreForgotten: the table of partitions does
// not grow with every tenant that ever had an item.
func TestPartitionsInWhichNothingWaitsAreForgotten(t *testing.T) {
	t.Parallel()
	l, err := OpenLedger(t.Context(), filepath.Join(memoryDir(t), "work.db"), &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill(t, l, 30, 30)
	if got, err := l.Claim(t.Context(), claimOf("q", 30)); err != nil || len(got) != 30 {
		t.Fatal(len(got), err)
	}
	if got, err := l.Claim(t.Context(), claimOf("q", 1)); err != nil || len(got) != 0 {
		t.Fatal(len(got), err)
	}
	err = l.readOnly(t.Context(), func(tx *ledgerTx) error {
		n := 0
		if err := tx.session.QueryRowContext(t.Context(), "SELECT count(*) FROM croft_partition").Scan(&n); err != nil {
			return err
		}
		if n != 0 {
			t.Errorf("%d partitions are kept", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fill adds n items to a queue, in so many partitions.
func fill(tb testing.TB, l *Ledger, n, partitions int) {
	tb.Helper()
	for n > 0 {
		adds := make([]work.Request, min(n, 2000))
		for i := range adds {
			n--
			adds[i] = work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q", Partition: fmt.Sprintf("tenant-%d", n%partitions)}
		}
		for _, a := range l.Apply(tb.Context(), adds) {
			if a.Err != nil {
				tb.Fatal(a.Err)
			}
		}
	}
}

// BenchmarkClaimByPartitions claims 10 items of 20,000, in few and in many
// partitions, and gives them back. One partition of the many has 10,000 items.
func BenchmarkClaimByPartitions(b *testing.B) {
	for _, partitions := range []int{1, 10, 100, 10000} {
		for _, limit := range []int{0, 5} {
			b.Run(fmt.Sprintf("%d partitions/limit %d", partitions, limit), func(b *testing.B) {
				l, err := OpenLedger(b.Context(), filepath.Join(memoryDir(b), "work.db"), nil)
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				fill(b, l, 10000, 1)
				fill(b, l, 10000, partitions)
				if limit > 0 {
					if _, err := l.Govern(b.Context(), work.RuleChange{
						Verb: work.SetLimit, Queue: "q", Partition: work.EachPartition, Actor: "a", Note: "n",
						Limit: work.Limit{Running: limit},
					}); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					c := claimOf("q", 10)
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
