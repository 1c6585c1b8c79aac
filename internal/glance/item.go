package glance

import (
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ItemState is an item's state in one word. A lapsed item still runs in the
// ledger, but nobody has heard from its owner in time.
func ItemState(it work.Item, now time.Time) string {
	switch {
	case it.State == work.Running && it.Lapsed(now):
		return "lapsed"
	case it.State != work.Waiting:
		return string(it.State)
	case it.Record.State == tenure.Reserved && now.Before(it.Record.Deadline):
		return "reserved"
	case it.Ready.After(now):
		return "scheduled"
	}
	return "waiting"
}
