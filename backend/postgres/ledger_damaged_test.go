package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestADamagedItemStandsInNobodysWay: what somebody has spoilt by hand is refused by itself; the others are claimed, listed, completed and requeued as if it were not there.
func TestADamagedItemStandsInNobodysWay(t *testing.T) {
	t.Parallel()
	l, name := ledgerWith(t, testenv.Patience)
	applied(t, l, adds("q", 6))
	spoil := func(id work.ID, state string) {
		if _, err := shared(t).Exec(t.Context(), "UPDATE "+name+".item SET state = $2, ttl = NULL, past = '[1]' WHERE id = $1::text::uuid", string(id), state); err != nil {
			t.Fatal(err)
		}
	}
	items, secret := claimed(t, l, "q", 6)
	spoil(items[0].ID, "running")
	requests := make([]work.Request, len(items))
	for i, it := range items {
		requests[i] = work.Request{Verb: work.Report, ID: it.ID, Token: it.Record.Token, Secret: secret, Progress: "half"}
	}
	for i, a := range l.Apply(t.Context(), requests) {
		if damaged := i == 0; damaged != errors.Is(a.Err, work.ErrUnknown) || !damaged && a.Err != nil {
			t.Errorf("report %d: %v", i, a.Err)
		}
	}
	var listed int
	var failed error
	for _, err := range l.List(t.Context(), work.Query{}) {
		if err != nil {
			failed = err
			continue
		}
		listed++
	}
	if listed != 5 || failed == nil || !strings.Contains(failed.Error(), string(items[0].ID)) {
		t.Errorf("%d items were listed, and: %v", listed, failed)
	}
	again, err := l.Claim(t.Context(), work.Claim{Queues: []string{"q"}, Limit: 6, Secret: secret, Owner: "ann", TTL: time.Hour, Again: true})
	if err != nil || len(again) != 5 {
		t.Errorf("claimed again: %d items, %v", len(again), err)
	}
	for i := range requests {
		requests[i].Verb = work.Release
	}
	l.Apply(t.Context(), requests)
	spoil(items[0].ID, "waiting")
	other := tenure.NewSecret()
	for turn := range 2 {
		items, err := l.Claim(t.Context(), work.Claim{Queues: []string{"q"}, Limit: 6, Secret: other, Owner: "bob", TTL: time.Hour, Again: turn > 0})
		if err != nil || len(items) != 5 {
			t.Errorf("claimed by another: %d items, %v", len(items), err)
		}
	}
}
