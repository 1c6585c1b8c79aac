package storetest

import (
	"slices"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/tenure"
)

// historyRule says how much of its history a record must have.
type historyRule int

const (
	wholeHistory  historyRule = iota // all of it, as Get returns it
	historyOrNone                    // all or none: answers and listings may leave it out
)

// differ says in which field a store's record differs from the wanted one. It
// returns "" if they are equal.
func differ(want, got tenure.Record, rule historyRule) string {
	if rule == historyOrNone && len(got.History) == 0 {
		want.History = nil
	}
	if slices.Equal(want.History, got.History) { // the usual case, and much cheaper
		want.History, got.History = nil, nil
	}
	return suite.Differ(want, got)
}
