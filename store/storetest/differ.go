package storetest

import (
	"slices"

	"github.com/croft-dev/croft/internal/suite"
	"github.com/croft-dev/croft/tenure"
)

// How much of a record's history there must be.
type historyRule int

const (
	wholeHistory  historyRule = iota // as Get returns it
	historyOrNone                    // as answers and listings may leave it out
)

// differ says in which field a store's record is not the wanted one; "" if in none.
func differ(want, got tenure.Record, rule historyRule) string {
	if rule == historyOrNone && len(got.History) == 0 {
		want.History = nil
	}
	if slices.Equal(want.History, got.History) { // nearly always, and much cheaper than to look for a difference
		want.History, got.History = nil, nil
	}
	return suite.Differ(want, got)
}
