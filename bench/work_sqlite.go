package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/croft-dev/croft/backend/sqlite"
)

// benchWorkSQLite compares Croft's ledger with bare commits of the same
// durability: one to claim an item, one to complete it.
func benchWorkSQLite(ctx context.Context, b *bench) error {
	dir, err := b.folder("sqlite-work")
	if err != nil {
		return err
	}
	floor, err := floorSQLite(dir).open(ctx, 1)
	if err != nil {
		return err
	}
	bare := crew{
		name: "floor, two commits for each item",
		add:  func(context.Context, int) error { return nil },
		drain: func(ctx context.Context, n int) error {
			for i := range n {
				done, err := floor.take(0)(ctx, fmt.Sprintf("item-%d", i))
				if err != nil {
					return err
				}
				if err := done(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		close: floor.close,
	}
	l, err := sqlite.OpenLedger(ctx, filepath.Join(dir, "work.db"), nil)
	if err != nil {
		return err
	}
	t := b.newTable()
	if err := crewRounds(ctx, b, nil, t, 2000, []crew{bare, croftCrew(croftName, l, 500, func() {
		_ = l.Close()
	})}); err != nil {
		return err
	}
	b.add(t)
	return nil
}
