package clerk

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestARowKeepsTheGuardsOfAnItem: an item without guards keeps none.
func TestARowKeepsTheGuardsOfAnItem(t *testing.T) {
	for _, guards := range [][]string{nil, {"/srv/a"}, {`/srv/a "b", \c`, "s3://bucket/ü"}} {
		it := work.Item{ID: work.NewID(), Queue: "q", State: work.Waiting, Created: time.Now(), Guards: guards}
		row, err := Row(it)
		if err != nil || (len(guards) == 0) != (row.Guards == nil) {
			t.Fatalf("the row keeps %q, %v", row.Guards, err)
		}
		text, err := json.Marshal(row) // as PostgreSQL carries it
		if err != nil {
			t.Fatal(err)
		}
		var again Item
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		for _, r := range []Item{row, again} {
			if got, damage := r.Read(); damage != nil || !slices.Equal(got.Guards, guards) {
				t.Errorf("read %q, %v; want %q", got.Guards, damage, guards)
			}
		}
	}
}

// TestGuardsThatNoLedgerWroteAreDamage: somebody has changed the row by hand.
// Nothing is decided from it, and nothing in it is opened.
func TestGuardsThatNoLedgerWroteAreDamage(t *testing.T) {
	many := make([]string, tenure.MaxGuards+1)
	for i := range many {
		many[i] = fmt.Sprintf("/srv/%d", i)
	}
	for _, text := range []string{
		`{"a": 1}`, `[1]`, `[""]`, `not JSON`, `["a\nb"]`, string(List(many)),
		string(List([]string{"/" + strings.Repeat("x", tenure.MaxText)})),
	} {
		row := Item{ID: string(work.NewID()), Queue: "q", State: string(work.Waiting), Guards: json.RawMessage(text)}
		if _, damage := row.Read(); !errors.Is(damage, ErrDamaged) {
			t.Errorf("%.40s is read as sound", text)
		}
	}
}
