package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/testenv"
)

// TestWhatIsFinishedIsNotRead: what runs again and again finds its rows by an index, however many items are kept.
func TestWhatIsFinishedIsNotRead(t *testing.T) {
	t.Parallel()
	l, err := OpenLedger(t.Context(), filepath.Join(memoryDir(t), "work.db"), &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, text := range map[string]string{
		"claim": sqlWorkReady, "level": sqlWorkLevel, "claim again": sqlWorkGranted, "running": sqlWorkListRunning, "take": sqlWorkTake, "orphans": sqlWorkEffectsOrphaned,
		"old": sqlWorkOld, "item": sqlWorkItem, "key": sqlWorkUnique, "effect": sqlWorkEffect,
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
		err := l.looking(t.Context(), func(d *desk) error {
			rows, err := d.session.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args[:min(len(args), 8)]...)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id, parent, unused int
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					return err
				}
				if strings.HasPrefix(step, "SCAN croft_") {
					t.Errorf("%s: %s", name, step)
				}
			}
			return rows.Err()
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
