package sqlite

import (
	"context"
	"errors"
	"path/filepath"
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
	file := filepath.Join(memoryDir(t), "work.db")
	l, err := OpenLedger(t.Context(), file, &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var adds []work.Request
	for range 6 {
		adds = append(adds, work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"})
	}
	for _, a := range l.Apply(t.Context(), adds) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	spoil := func(id work.ID, state string) {
		err := l.within(t.Context(), func(ctx context.Context, d *desk) error {
			_, err := d.exec(ctx, "UPDATE croft_item SET state = ?2, ttl = NULL, past = x'5b315d' WHERE id = ?1", string(id), state)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	secret := tenure.NewSecret()
	items, err := l.Claim(t.Context(), work.Claim{Queues: []string{"q"}, Limit: 6, Secret: secret, Owner: "ann", TTL: time.Hour})
	if err != nil || len(items) != 6 {
		t.Fatal(len(items), err)
	}
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
