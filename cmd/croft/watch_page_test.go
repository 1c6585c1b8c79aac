package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// TestThePageFitsTheTerminal: the page fits every size, and keys that need
// attention come first.
func TestThePageFitsTheTerminal(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, keys := range []int{0, 1, 5, 500} {
		for _, size := range [][2]int{{40, 10}, {80, 24}, {200, 60}} {
			p := &watchPage{a: &app{&cli.App{Stdout: &cli.Sink{W: io.Discard}}}, name: "/shared/croft", what: "all keys", message: "connection refused"}
			p.snapshot = snapshot{at: now, all: map[string]tenure.Record{}, refusals: map[refusals.Refusal]bool{}}
			for i := range keys {
				key := fmt.Sprintf("namespace/%03d/%s", i, strings.Repeat("long", 20))
				p.all[key] = tenure.Record{
					Key: key, State: tenure.Held, Owner: strings.Repeat("somebody@", 8), Token: 1, Cause: tenure.First, Acquired: now.Add(-time.Minute), TTL: time.Minute,
					Deadline: now.Add(time.Duration(i-1) * time.Second), Progress: strings.Repeat("far ", 50), ProgressAt: now,
				}
				p.changed = append(p.changed, changeLine(change{at: now, what: "granted", rec: p.all[key]}, true))
				r := refusals.Refusal{At: now, Key: key, Owner: "old", Token: 1, Newest: 2, Act: "write", Code: "stale", Target: strings.Repeat("out", 50), Count: 3}
				p.refusals[r] = true
				p.changed = append(p.changed, changeLine(change{at: now, what: "refused", rec: p.all[key], refused: &r}, true))
			}
			rows := strings.Split(p.render(size[0], size[1]), "\n")
			if len(rows) > size[1] {
				t.Errorf("%d keys: %d rows on a terminal with %d", keys, len(rows), size[1])
			}
			for _, row := range rows {
				if cli.Width(uncolour.Replace(row)) > size[0] {
					t.Errorf("%d keys: a row of %d columns on a terminal with %d: %q", keys, cli.Width(uncolour.Replace(row)), size[0], row)
				}
			}
			text := strings.Join(rows, "\n")
			if keys > 0 && strings.Index(text, "expired") > strings.Index(text, " held ") && strings.Contains(text, " held ") && !strings.Contains(rows[0], "expired") {
				t.Errorf("%d keys: what has expired is not shown first:\n%s", keys, text)
			}
			if !strings.Contains(text, "connection refused") {
				t.Error("what is wrong with the store is not shown")
			}
			if keys == 500 && !strings.Contains(text, "more") {
				t.Error("that there is more is not shown")
			}
		}
	}
}
