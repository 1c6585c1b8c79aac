package history

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/work"
)

// requests makes a history of one item. Each operation begins when the one
// before has ended, unless a test changes it.
func requests(ops ...ItemOp) []ItemOp {
	for i := range ops {
		o := &ops[i]
		o.Item, o.Copies = "x", max(o.Copies, 1)
		if o.Process == "" {
			o.Process = "p"
		}
		if o.End == 0 {
			o.Begin, o.End = int64(10*i+1), int64(10*i+9)
		}
	}
	return ops
}

var (
	added   = ItemOp{Verb: work.Add}
	claimed = ItemOp{Verb: Claimed, Token: 5}
	done    = ItemOp{Verb: work.Complete, Token: 5, Result: "by 5"}
)

// TestLawfulHistoriesOfItemsAreAccepted, with requests that overlap, and with
// servers that give back what their clients have left behind.
func TestLawfulHistoriesOfItemsAreAccepted(t *testing.T) {
	t.Parallel()
	for what, ops := range map[string][]ItemOp{
		"one attempt": requests(added, claimed, ItemOp{Verb: work.Heartbeat, Token: 5}, done, ItemOp{Verb: Got, Done: true, Result: "by 5"}),
		"two attempts": requests(
			added, claimed, ItemOp{Verb: work.Fail, Token: 5}, ItemOp{Verb: Claimed, Token: 7}, ItemOp{Verb: work.Complete, Token: 5, Refused: true, Result: "late"},
			ItemOp{Verb: work.Complete, Token: 7, Result: "by 7"}, ItemOp{Verb: Got, Done: true, Result: "by 7"},
		),
		"taken over": requests(
			added, claimed, ItemOp{Verb: work.Takeover, Token: 6}, ItemOp{Verb: work.Complete, Token: 5, Refused: true, Result: "late"},
			ItemOp{Verb: work.Release, Token: 6}, ItemOp{Verb: Claimed, Token: 8}, ItemOp{Verb: Got},
		),
		"a takeover too late":    requests(added, claimed, done, ItemOp{Verb: work.Takeover, Refused: true}),
		"given back by a server": requests(added, ItemOp{Verb: Claimed, Token: 5, Copies: 2}, ItemOp{Verb: Claimed, Token: 6}, ItemOp{Verb: work.Complete, Token: 5, Refused: true}),
		"a release whose answer was lost": requests(
			added, claimed, ItemOp{Process: "p", Verb: work.Release, Token: 5, Copies: 2, Refused: true, Begin: 25, End: 60},
			ItemOp{Process: "q", Verb: Claimed, Token: 6, Begin: 30, End: 40},
		),
		"a read beside a completion": requests(
			added, claimed, ItemOp{Process: "p", Verb: work.Complete, Token: 5, Result: "by 5", Begin: 25, End: 60},
			ItemOp{Process: "q", Verb: Got, Begin: 30, End: 40},
		),
	} {
		if found := CheckItems(ops, time.Minute); len(found) != 0 {
			t.Errorf("%s: %v", what, found)
		}
	}
}

// TestUnlawfulHistoriesOfItemsAreFound: two owners, lost and doubled results,
// old owners who are admitted, and refusals without a reason.
func TestUnlawfulHistoriesOfItemsAreFound(t *testing.T) {
	t.Parallel()
	for what, ops := range map[string][]ItemOp{
		"two owners":                   requests(added, claimed, ItemOp{Verb: Claimed, Token: 6}),
		"one token twice":              requests(added, claimed, ItemOp{Verb: work.Release, Token: 5}, claimed),
		"a token that goes down":       requests(added, claimed, ItemOp{Verb: work.Release, Token: 5}, ItemOp{Verb: Claimed, Token: 4}),
		"a claim of a done item":       requests(added, claimed, done, ItemOp{Verb: Claimed, Token: 6}),
		"two results":                  requests(added, claimed, ItemOp{Verb: work.Takeover, Token: 6}, ItemOp{Verb: work.Complete, Token: 6, Result: "by 6"}, done),
		"an old owner's result":        requests(added, claimed, ItemOp{Verb: work.Takeover, Token: 6}, done),
		"an old owner's heartbeat":     requests(added, claimed, ItemOp{Verb: work.Takeover, Token: 6}, ItemOp{Verb: work.Heartbeat, Token: 5}),
		"a result that is lost":        requests(added, claimed, done, ItemOp{Verb: Got}),
		"another result":               requests(added, claimed, done, ItemOp{Verb: Got, Done: true, Result: "by 4"}),
		"a result out of nowhere":      requests(added, claimed, ItemOp{Verb: Got, Done: true, Result: "by 5"}),
		"the owner refused":            requests(added, claimed, ItemOp{Verb: work.Complete, Token: 5, Refused: true, Result: "by 5"}),
		"a release refused":            requests(added, claimed, ItemOp{Verb: work.Release, Token: 5, Refused: true}),
		"a takeover refused":           requests(added, claimed, ItemOp{Verb: work.Takeover, Refused: true}),
		"a claim before there is one":  requests(claimed, added),
		"given back without a reason":  requests(added, claimed, ItemOp{Verb: Claimed, Token: 6}, ItemOp{Verb: work.Complete, Token: 5, Refused: true}),
		"a completion after a release": requests(added, claimed, ItemOp{Verb: work.Release, Token: 5}, done),
	} {
		if found := CheckItems(ops, time.Minute); len(found) != 1 || found[0].Law != Queue || found[0].Key != "x" {
			t.Errorf("%s: %v", what, found)
		}
	}
}
