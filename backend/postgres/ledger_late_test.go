package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// completed adds an item and completes it with an effect.
func completed(t *testing.T, l work.Ledger, queue string) work.ID {
	t.Helper()
	applied(t, l, adds(queue, 1))
	items, secret := claimed(t, l, queue, 1)
	if len(items) != 1 {
		t.Fatalf("%d items were claimed", len(items))
	}
	applied(t, l, []work.Request{{Verb: work.Complete, ID: items[0].ID, Token: items[0].Record.Token, Secret: secret, Effects: []work.Emission{{Name: "mail"}}}})
	return items[0].ID
}

func taken(t *testing.T, l work.Ledger, stamp fence.Stamp) []work.Effect {
	t.Helper()
	effects, err := l.Take(t.Context(), work.Taking{Stamp: stamp, Limit: 10, Hold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return effects
}

// TestADispatcherThatFoundNothingIsKnownToWait: it is told of every effect, not
// only of the first.
func TestADispatcherThatFoundNothingIsKnownToWait(t *testing.T) {
	t.Parallel()
	l, schema := ledgerWith(t, testenv.Patience)
	hints, err := l.Wake(t.Context(), work.Wanted{Effects: true})
	if err != nil {
		t.Fatal(err)
	}
	stamp := fence.Stamp{Key: "work/dispatcher", Token: 5, Grant: tenure.NewSecret().Grant()}
	for round := range 3 {
		for len(taken(t, l, stamp)) > 0 { // until there is nothing left
		}
		var waits int
		if err := shared(t).QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".idle WHERE queue = '' AND wait_until > clock_timestamp()").Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits != 1 {
			t.Errorf("round %d: nobody is known to wait", round)
		}
		completed(t, l, "q")
		select {
		case <-hints:
		case <-time.After(testenv.Patience):
			t.Fatalf("round %d: no hint", round)
		}
	}
}

// TestAnEffectThatIsMadePendingAgainIsNotPruned: an operator's settlement and
// the pruning of its item come at the same moment, and the operator is first.
func TestAnEffectThatIsMadePendingAgainIsNotPruned(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	own := empty(t)
	p, schema := own.pool, own.name
	l := postgres.NewLedger(p, postgres.LedgerAt(clock.Now, &postgres.LedgerOptions{Schema: schema, LockWait: testenv.Patience}))
	defer func() { _ = l.Close() }()
	id := completed(t, l, "q")
	stamp := fence.Stamp{Key: "work/dispatcher", Token: 5, Grant: tenure.NewSecret().Grant()}
	effect := taken(t, l, stamp)[0]
	if a := l.Settle(t.Context(), []work.Settlement{{Effect: effect.EffectID, Attempt: effect.Attempts, State: work.Failed, Error: "refused", Stamp: stamp}})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	clock.Advance(400 * 24 * time.Hour)

	// This is a settlement that is not committed yet.
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "UPDATE "+schema+".effect SET state = 'pending'"); err != nil {
		t.Fatal(err)
	}
	pruned := make(chan work.Pruned, 1)
	go func() {
		n, err := l.Prune(t.Context(), work.Retention{}, 10)
		if err != nil {
			t.Error(err)
		}
		pruned <- n
	}()
	testenv.Eventually(t, "the pruning waits for the settlement", func() error {
		var waits int
		err := p.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'.effect%'", schema).Scan(&waits)
		if err == nil && waits == 0 {
			err = errors.New("nobody waits")
		}
		return err
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-pruned; n.Items != 0 {
		t.Errorf("%d items were pruned", n.Items)
	}
	if _, err := l.Get(t.Context(), id); err != nil {
		t.Error(err)
	}
	if effects := taken(t, l, stamp); len(effects) != 1 {
		t.Errorf("%d effects are to be delivered, want the one that is pending again", len(effects))
	}
}
