package postgres_test

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/work/worktest"
)

// ledgerFlaws are errors that the functions for rules and partitions could
// have. Each names the group of the suite that has to notice it.
var ledgerFlaws = []struct{ name, group, function, old, change string }{
	{"claims see no rules", "limits", "governed_v1", "AND (r.paused OR r.running > 0 OR r.starts > 0)", "AND false"},
	{"claims see no partitions", "partitions", "governed_v1", "WHERE p.queue = q)", "WHERE false)"},
	{"an item makes no partition wait", "partitions", "item_waits_v1", "IF NOT FOUND THEN", "IF false THEN"},
	{"a partition keeps its turn", "partitions", "partitions_wait_v1", "IF FOUND THEN", "IF false THEN"},
	{"a partition with later items is forgotten", "partitions", "partitions_settle_v1", "IF FOUND THEN", "IF false THEN"},
	{"a partition waits for items that it has not", "partitions", "partitions_settle_v1", "greatest(now_us, first)", "now_us + 3600000000"},
	{"a partition gives items of all", "partitions", "ready_v1", "AND i.partition = c.partition ", ""},
	{"partitions of lower priority are not seen", "partitions", "level_v1", "ORDER BY - p.priority LIMIT 1", "ORDER BY p.priority LIMIT 1"},
	{"a claim changes no owner", "limits", "grant_v1", "owner = n.owner", "owner = i.owner"},
}

// TestLedgerFunctionsBrokenOnPurposeAreCaught: the suite that the functions
// pass notices every flaw.
func TestLedgerFunctionsBrokenOnPurposeAreCaught(t *testing.T) {
	t.Parallel()
	shared(t)
	own := lot{schema(), pool(t, server.url+"&pool_max_conns=20")}
	l := postgres.NewLedger(own.pool, &postgres.LedgerOptions{Schema: own.name})
	if _, err := l.Stats(t.Context(), ""); err != nil { // makes the schema
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range ledgerFlaws {
		mend := broken(t, own.name, f.function, f.old, f.change)
		caught := false
		failures := worktest.Failures(t, func(tb testing.TB) worktest.Harness {
			if caught {
				tb.SkipNow() // one check is enough
			}
			tb.Cleanup(func() { caught = tb.Failed() })
			own.wipe(tb)
			clock := storetest.NewClock()
			h := ledgerPlace(own, clock.Now, clock.Advance)
			h.Patience = 300 * time.Millisecond
			return h
		}, f.group)
		if len(failures) == 0 {
			t.Errorf("%s: the suite has not noticed", f.name)
		}
		for check, said := range failures {
			t.Logf("%s: caught by %q: %s", f.name, check, said[0])
		}
		mend()
	}
}
