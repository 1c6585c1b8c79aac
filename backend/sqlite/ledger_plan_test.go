package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/work"
)

// TestFinishedItemsAreNotRead checks that frequent statements find their rows
// by an index, however many items are kept.
func TestFinishedItemsAreNotRead(t *testing.T) {
	t.Parallel()
	l, err := OpenLedger(t.Context(), filepath.Join(memoryDir(t), "work.db"), &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, text := range map[string]string{
		"claim": sqlWorkReady, "level": sqlWorkLevel, "claim again": sqlWorkGranted, "take": sqlWorkTake, "take any": sqlWorkTakeAny, "take next": sqlWorkTakeNext, "orphans": sqlWorkEffectsOrphaned,
		"old": sqlWorkOld, "backlog": sqlWorkBacklog, "item": sqlWorkItem, "key": sqlWorkUnique, "effect": sqlWorkEffect,
		"turns": sqlWorkTurns, "level of partitions": sqlWorkPartitionLevel, "settle": sqlWorkSettle, "settle empty": sqlWorkSettleEmpty,
		"running": sqlWorkRunning, "running in": sqlWorkRunningIn, "governed": sqlWorkGoverned, "wait": sqlWorkWait, "starts": sqlWorkStarts,
	} {
		args := make([]any, strings.Count(text, "?"))
		for i := range args {
			args[i] = "1"
		}
		for n := 1; n <= 8; n++ {
			if !strings.Contains(text, "?"+string(rune('0'+n))) {
				args = args[:n-1]
				break
			}
		}
		err := l.readOnly(t.Context(), func(tx *ledgerTx) error {
			plan, err := planOf(t.Context(), tx, text, args[:min(len(args), 8)]...)
			for _, step := range plan {
				// A backlog reads whole partial indexes: those of what is open.
				if strings.HasPrefix(step, "SCAN croft_") && !strings.Contains(step, "USING INDEX croft_") &&
					!strings.Contains(step, "USING COVERING INDEX croft_") {
					t.Errorf("%s: %s", name, step)
				}
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// throughIDs matches a plan that reads all items.
var throughIDs = regexp.MustCompile(`autoindex_croft_item_1 \(id[<>]|SCAN croft_item`)

// TestDoneItemsAreNotListedThrough checks that listings of open items use
// indexes without done items. People ask for them, and the reconciler does in
// every pass.
func TestDoneItemsAreNotListedThrough(t *testing.T) {
	t.Parallel()
	l, err := OpenLedger(t.Context(), filepath.Join(memoryDir(t), "work.db"), &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		q     work.Query
		index string
	}{
		{work.Query{States: []work.State{work.Running}}, "croft_item_running"},
		{work.Query{States: []work.State{work.Waiting}, Queue: "q", Owner: "ann"}, "croft_item_waiting"},
		{work.Query{States: []work.State{work.Waiting, work.Dead}, Newest: true}, "croft_item_given_up"},
	} {
		err := l.readOnly(t.Context(), func(tx *ledgerTx) error {
			text, err := tx.listing(t.Context(), c.q)
			if err != nil {
				return err
			}
			plan, err := planOf(t.Context(), tx, text, c.q.Queue, list(c.q.States), c.q.Owner, "", page)
			if all := strings.Join(plan, "\n"); err == nil && (!strings.Contains(all, c.index) || throughIDs.MatchString(all)) {
				t.Errorf("%s is not all that is read:\n%s", c.index, all)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestManyAreListedByGoingThroughAll checks that a listing of many open items
// reads all items once. With the other statement, each page would read all open
// items.
func TestManyAreListedByGoingThroughAll(t *testing.T) {
	t.Parallel()
	l, err := OpenLedger(t.Context(), filepath.Join(memoryDir(t), "work.db"), &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waiting := work.Query{States: []work.State{work.Waiting}}
	for n, want := range map[int]string{few: sqlWorkListFew.Text(false), few + 1: sqlWorkList.Text(false)} {
		err := l.within(t.Context(), func(ctx context.Context, tx *ledgerTx) error {
			_, err := tx.exec(ctx, `DELETE FROM croft_item`)
			if err == nil {
				_, err = tx.exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
					INSERT INTO croft_item (id, queue, state, priority, ready, created, attempts, tries, generation, error, owner, instance, held, cause, ended, actor, note, progress, terms)
					SELECT lower(hex(randomblob(16))), 'q', 'waiting', 0, i, i, 0, 1, 0, '', '', '', '', '', '', '', '', '', 0 FROM n`, n)
			}
			if err != nil {
				return err
			}
			text, err := tx.listing(ctx, waiting)
			if text != want {
				t.Errorf("%d items are listed by %s", n, text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		found, err := 0, error(nil)
		last := work.ID("")
		for it, bad := range l.List(t.Context(), waiting) {
			if bad != nil || it.ID <= last {
				err = errors.Join(err, bad, fmt.Errorf("%s after %s", it.ID, last))
				break
			}
			found, last = found+1, it.ID
		}
		if found != n || err != nil {
			t.Errorf("%d of %d items are listed: %v", found, n, err)
		}
	}
}

// planOf returns the steps by which SQLite carries out a statement.
func planOf(ctx context.Context, tx *ledgerTx, text string, args ...any) (steps []string, err error) {
	rows, err := tx.session.QueryContext(ctx, "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, rows.Err()
}
