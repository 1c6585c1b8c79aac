package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAClientThatIsJustLeavingIsNotNamed: the first client in the queue leaves
// at the very moment of a release. It neither delays the release nor swallows
// the turn of the next client.
func TestAClientThatIsJustLeavingIsNotNamed(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{LockWait: testenv.Patience})
	mine := claim("watch/leaving", "ann")
	must(t, st, mine)
	exec(t, "SELECT "+name+".wait_v1(1000, 'leaving', $1, 60000)", []string{mine.Key})
	waiter, _ := fresh(t, postgres.Options{Schema: name})
	heard := listen(t, name)
	c := waitsFor(t, waiter, mine.Key)
	tx, err := shared(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "DELETE FROM "+name+".waiter WHERE id = 'leaving'"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan store.Answer, 1)
	go func() { answer <- one(t.Context(), st, then(tenure.Release, mine)) }()
	testenv.Eventually(t, "the release is over, or waits for the one that leaves", func() error {
		if len(answer) == 1 || number(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1::text||'.%'", name) > 0 {
			return nil
		}
		return errors.New("neither")
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-answer; a.Err != nil {
		t.Fatalf("the release: %v", a.Err)
	}
	if id := heard.turn(mine.Key); id == "leaving" {
		t.Error("a client was named that had left")
	}
	woken(t, c, "its turn")
}

// TestOneTurnIsOneClients: this must hold for every plan of the server. With
// statistics of many keys and few waiters, the server joins tables row by row.
func TestOneTurnIsOneClients(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	must(t, st, claim("turns/made", "ann"))
	exec(t, "INSERT INTO "+name+".waiter (key, id, wait_until) SELECT 'turns/'||i, 'one', now() + interval '1 hour' FROM generate_series(1, 500) i")
	exec(t, "INSERT INTO "+name+".waiter (key, id, wait_until) SELECT 'turns/busy', 'client '||i, now() + interval '1 hour' FROM generate_series(10, 25) i")
	exec(t, "ANALYZE "+name+".waiter")
	tx, err := shared(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, setting := range []string{"enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off", "enable_material = off", "plan_cache_mode = force_generic_plan"} {
		if _, err := tx.Exec(t.Context(), "SET LOCAL "+setting); err != nil {
			t.Fatal(err)
		}
	}
	for turn := 1; turn <= 16; turn++ {
		if _, err := tx.Exec(t.Context(), "SELECT "+name+".wake_v1('turns/busy')"); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		var named int
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".waiter WHERE named").Scan(&named); err != nil || named != turn {
			t.Fatalf("after turn %d: %d were named, %v", turn, named, err)
		}
	}
}
