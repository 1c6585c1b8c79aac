package worktest

import (
	"slices"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

// limit returns a change that sets a limit.
func limit(queue, partition string, l work.Limit) work.RuleChange {
	c := change(work.SetLimit, queue)
	c.Partition, c.Limit = partition, l
	return c
}

// addMany adds n items to a partition of a queue, or to none.
func (t *trial) addMany(n int, queue, partition string) {
	t.Helper()
	adds := make([]work.Request, n)
	for i := range adds {
		adds[i] = added(queue)
		adds[i].Partition = partition
	}
	for _, a := range t.apply(t.ledger, adds...) {
		if a.Err != nil {
			t.Fatalf("add: %v", a.Err)
		}
	}
}

// claimSome claims up to n items of the queues and expects want.
func (t *trial) claimSome(n, want int, queues ...string) []held {
	t.Helper()
	c := claimOf(queues[0])
	c.Queues, c.Limit = queues, n
	got := t.claim(c)
	if len(got) != want {
		t.Fatalf("a claim of %d got %d items, want %d", n, len(got), want)
	}
	all := make([]held, len(got))
	for i, it := range got {
		all[i] = held{it, c.Secret}
	}
	return all
}

func limits() []check {
	return []check{
		{"as many run as may, and no more", func(t *trial) {
			t.govern(limit("q", "", work.Limit{Running: 3}))
			t.addMany(8, "q", "")
			first := t.claimSome(2, 2, "q")
			rest := t.claimSome(5, 1, "q")
			t.claimSome(5, 0, "q")
			t.must(first[0].by(work.Complete))
			t.claimSome(5, 1, "q")
			failed := first[1].by(work.Fail)
			failed.Delay = long
			t.must(failed)
			t.must(rest[0].by(work.Release))
			t.claimSome(5, 2, "q")
		}},
		{"a lapsed item runs until it is requeued", func(t *trial) {
			t.govern(limit("q", "", work.Limit{Running: 1}))
			h := t.lapsed("q")
			t.must(added("q"))
			t.claimSome(1, 0, "q")
			t.must(requeue(h.Item))
			t.claimSome(2, 1, "q")
		}},
		{"a takeover counts, and is not held up", func(t *trial) {
			t.govern(limit("q", "", work.Limit{Running: 1}))
			taken := t.must(added("q")).Item.ID
			t.running("q")
			t.must(hand(work.Takeover, taken))
			t.must(added("q"))
			t.claimSome(1, 0, "q")
		}},
		{"a full queue holds up no other", func(t *trial) {
			t.govern(limit("q", "", work.Limit{Running: 2}))
			t.addMany(5, "q", "")
			t.addMany(5, "other", "")
			t.claimSome(4, 4, "q", "other")
			t.claimSome(4, 3, "q", "other")
		}},
		{"a limit changes, and is lifted", func(t *trial) {
			t.addMany(6, "q", "")
			t.claimSome(2, 2, "q")
			t.govern(limit("q", "", work.Limit{Running: 1})) // fewer than run already
			t.claimSome(1, 0, "q")
			t.govern(limit("q", "", work.Limit{Running: 3}))
			t.govern(change(work.Pause, "q"))
			t.claimSome(1, 0, "q")
			if r := t.govern(change(work.Resume, "q")); r.Running != 3 {
				t.Fatalf("after pause and resume the limit is %+v", r.Limit)
			}
			t.claimSome(5, 1, "q")
			t.govern(limit("q", "", work.Limit{}))
			t.claimSome(5, 3, "q")
		}},
		{"as many start in an interval as may", func(t *trial) {
			if t.Advance == nil {
				t.Skip("the check needs a clock that it can move")
			}
			t.govern(limit("q", "", work.Limit{Starts: 3, Interval: 100 * time.Second}))
			t.addMany(20, "q", "")
			first := t.claimSome(2, 2, "q")
			t.must(first[0].by(work.Complete)) // the end of an item makes no room
			t.Advance(40 * time.Second)
			t.claimSome(5, 1, "q")
			t.claimSome(5, 0, "q")
			t.Advance(60*time.Second - time.Microsecond)
			t.claimSome(5, 0, "q")
			t.Advance(time.Second + time.Microsecond) // a hundredth later
			t.claimSome(5, 2, "q")
			t.Advance(1000 * time.Second)
			t.claimSome(5, 3, "q")
			t.govern(limit("q", "", work.Limit{}))
			t.claimSome(5, 5, "q")
		}},
		{"both limits hold", func(t *trial) {
			t.govern(limit("q", "", work.Limit{Running: 2, Starts: 3, Interval: long}))
			t.addMany(9, "q", "")
			h := t.claimSome(9, 2, "q")
			t.must(h[0].by(work.Complete))
			t.must(h[1].by(work.Complete))
			t.claimSome(9, 1, "q")
		}},
		{"a claim sent again gets what it has, within the limit", func(t *trial) {
			t.govern(limit("q", "", work.Limit{Running: 2}))
			t.addMany(4, "q", "")
			c := claimOf("q")
			c.Limit = 4
			t.claim(c)
			c.Again = true
			if got := t.claim(c); len(got) != 2 {
				t.Fatalf("sent again, a claim got %d of 2 items", len(got))
			}
		}},
		{"a limit holds in the caller's transaction", func(t *trial) {
			if t.Within == nil {
				t.Skip("the ledger has no transactions")
			}
			t.govern(limit("q", "", work.Limit{Running: 2}))
			t.addMany(4, "q", "")
			c := claimOf("q")
			c.Limit = 4
			if err := t.Within(t.ctx, t.ledger, func(in work.Operations) error {
				got, err := in.Claim(t.ctx, c)
				if err != nil || len(got) != 2 {
					t.Errorf("in a transaction a claim got %d items, want 2, and %v", len(got), err)
				}
				return err
			}); err != nil {
				t.Fatalf("the transaction: %v", err)
			}
			t.claimSome(4, 0, "q")
		}},
		{"claims of many keep the limit at every instant", func(t *trial) { t.crowd("q", "", 3, "") }},
		{"a limit is kept by claims that began before it", func(t *trial) {
			ledgers := []work.Ledger{t.ledger, t.open(), t.open()}
			n := t.many(40, 16)
			t.addMany(n, "q", "")
			var mu sync.Mutex
			limited, after := false, 0
			suite.Together(3, func(i int) {
				if i == 2 {
					if _, err := ledgers[2].Govern(t.ctx, limit("q", "", work.Limit{Running: 1})); err != nil {
						t.Errorf("limit: %v", err)
					}
					mu.Lock()
					limited = true
					mu.Unlock()
					return
				}
				for range n {
					mu.Lock()
					late := limited
					mu.Unlock()
					got, err := ledgers[i].Claim(t.ctx, claimOf("q"))
					if err != nil {
						t.Errorf("Claim: %v", err)
						return
					}
					if late {
						mu.Lock()
						after += len(got)
						mu.Unlock()
					}
				}
			})
			if running := t.count("q", work.Running); after > 0 && running > 1 {
				t.Fatalf("%d items run, and %d of them were claimed after the limit of 1 was set", running, after)
			}
		}},
	}
}

// count returns how many items of a queue are in a state.
func (t *trial) count(queue string, s work.State) int {
	t.Helper()
	return len(collect(t, "List", t.ledger.List(t.ctx, work.Query{Queue: queue, States: []work.State{s}})))
}

// crowd lets many claim items with several handles, and complete them. It
// checks from their history that never more than most ran at the same time.
// rule is the partition of the rule, and partition that of the items.
func (t *trial) crowd(queue, partition string, most int, rule string) {
	t.Helper()
	t.govern(limit(queue, rule, work.Limit{Running: most}))
	n := t.many(80, 30)
	t.addMany(n, queue, partition)
	ledgers := []work.Ledger{t.ledger, t.open(), t.open()}
	suite.Together(6, func(i int) {
		l := ledgers[i%3]
		for t.ctx.Err() == nil {
			c := claimOf(queue)
			c.Limit = 1 + i%3
			got, err := l.Claim(t.ctx, c)
			if err != nil {
				t.Errorf("Claim: %v", err)
				return
			}
			if len(got) > most {
				t.Errorf("one claim got %d items, %d may run", len(got), most)
				return
			}
			for _, it := range got {
				if a := l.Apply(t.ctx, []work.Request{held{it, c.Secret}.by(work.Complete)})[0]; a.Err != nil {
					t.Errorf("complete: %v", a.Err)
					return
				}
			}
			if len(got) > 0 {
				continue
			}
			if left, err := l.Stats(t.ctx, queue); err != nil || len(left) == 1 && left[0].Ready == 0 {
				return
			}
		}
	})
	type moment struct {
		at     time.Time
		change int
	}
	var history []moment
	for _, it := range t.all() {
		if it.Queue != queue || it.Partition != partition || it.State != work.Done {
			t.Fatalf("item %s is %s", it.ID, it.State)
		}
		history = append(history, moment{it.Record.Acquired, 1}, moment{it.Finished, -1})
	}
	slices.SortFunc(history, func(a, b moment) int {
		if a.at.Equal(b.at) { // under a clock that stands still, ends come first
			return a.change - b.change
		}
		return a.at.Compare(b.at)
	})
	running := 0
	for _, m := range history {
		if running += m.change; running > most && t.Advance == nil {
			t.Fatalf("at %s %d items ran, and %d may", m.at, running, most)
		}
	}
}
