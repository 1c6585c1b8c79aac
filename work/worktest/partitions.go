package worktest

import (
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/work"
)

// tick moves the ledger's clock a little, so that two claims differ in time.
func (t *trial) tick() {
	if t.Advance != nil {
		t.Advance(time.Millisecond)
	}
}

// servings claims n items one by one and returns their partitions.
func (t *trial) servings(n int, queues ...string) (names []string) {
	t.Helper()
	for range n {
		t.tick()
		for _, h := range t.claimSome(1, 1, queues...) {
			names = append(names, h.Partition)
		}
	}
	return names
}

// counted counts the names.
func counted(names []string) map[string]int {
	n := map[string]int{}
	for _, name := range names {
		n[name]++
	}
	return n
}

func partitions() []check {
	return []check{
		{"an item keeps its partition", func(t *trial) {
			req := added("q")
			req.Partition = "tenant 42/é"
			req.Unique = "one"
			a := t.must(req)
			if it := t.get(a.Item.ID); it.Partition != req.Partition {
				t.Fatalf("the partition kept is %q", it.Partition)
			}
			again := req
			again.ID = work.NewID()
			t.must(again)
			again.Partition = "other"
			if a := t.step(again); a.Err == nil {
				t.Fatalf("another partition was added under the same key")
			}
			for _, it := range collect(t, "List", t.ledger.List(t.ctx, work.Query{Queue: "q"})) {
				if it.Partition != req.Partition {
					t.Fatalf("the partition listed is %q", it.Partition)
				}
			}
			h := t.claimed("q", long)
			if h.Partition != req.Partition {
				t.Fatalf("the partition claimed is %q", h.Partition)
			}
			t.must(h.by(work.Release))
			t.must(t.claimed("q", long).by(work.Complete))
			for _, bad := range []string{
				work.EachPartition, "a\x00b", "\xff", strings.Repeat("x", work.MaxPartition+1),
			} {
				req := added("q")
				req.Partition = bad
				if t.step(req).Err == nil {
					t.Fatalf("the partition %.10q was taken", bad)
				}
			}
		}},
		{"many items of one partition do not hide few of another", func(t *trial) {
			t.addMany(t.many(200, 60), "q", "flood")
			t.tick()
			t.addMany(10, "q", "small")
			if n := counted(t.servings(21, "q")); n["small"] != 10 {
				t.Fatalf("of 21 claims %d got the 10 items of the small partition: %v", n["small"], n)
			}
		}},
		{"one claim serves partitions in turn", func(t *trial) {
			t.addMany(40, "q", "flood")
			t.tick()
			t.addMany(3, "q", "b")
			t.addMany(3, "q", "c")
			var names []string
			for _, h := range t.claimSome(9, 9, "q") {
				names = append(names, h.Partition)
			}
			if n := counted(names); n["flood"] != 3 || n["b"] != 3 || n["c"] != 3 {
				t.Fatalf("a claim of 9 got %v", n)
			}
			t.claimSome(100, 37, "q")
		}},
		{"items without a partition take turns with partitions", func(t *trial) {
			t.addMany(30, "q", "flood")
			t.tick()
			t.addMany(5, "q", "")
			if n := counted(t.servings(11, "q")); n[""] != 5 {
				t.Fatalf("of 11 claims %d got the 5 items without a partition: %v", n[""], n)
			}
		}},
		{"within a partition the oldest goes first", func(t *trial) {
			for _, p := range []int{0, 3, 0, -3, 3} {
				req := added("q")
				req.Partition, req.Priority = "one", p
				t.must(req)
				t.tick()
			}
			req := added("q")
			req.Partition = "two"
			t.must(req)
			for range 3 { // the oracle knows the order
				t.tick()
				t.claimSome(2, 2, "q")
			}
		}},
		{"a partition with nothing ready holds up no other", func(t *trial) {
			later := added("q")
			later.Partition, later.Delay = "later", long
			t.must(later)
			t.addMany(2, "q", "now")
			t.claimSome(5, 2, "q")
			if t.Advance == nil {
				return
			}
			t.Advance(long)
			h := t.claimSome(5, 1, "q")
			t.must(h[0].by(work.Release)) // and back
			t.must(t.claimSome(5, 1, "q")[0].by(work.Complete))
			t.addMany(1, "q", "later")
			t.claimSome(5, 1, "q")
		}},
		{"a partition has its turn when its next item is ready", func(t *trial) {
			later := added("q")
			later.Partition, later.Delay = "p", t.lapsing()/2
			id := t.must(later).Item.ID
			t.addMany(1, "q", "p")
			for range 2 { // the second claim finds nothing, unless the time has come
				t.tick()
				c := claimOf("q")
				t.claim(c)
			}
			t.pass(t.get(id).Ready)
			t.claim(claimOf("q"))
			if it := t.get(id); it.State != work.Running {
				t.Fatalf("the item is %s, and its time has come", it.State)
			}
		}},
		{"an item that waits again makes its partition wait", func(t *trial) {
			for name, back := range map[string]func(h held){
				"release": func(h held) { t.must(h.by(work.Release)) },
				"fail": func(h held) {
					req := h.by(work.Fail)
					req.Delay = time.Microsecond
					t.must(req)
					t.pass(t.get(h.ID).Ready)
				},
				"requeue": func(h held) {
					t.pass(t.get(h.ID).Record.Deadline)
					t.must(requeue(h.Item))
					t.pass(t.get(h.ID).Ready)
				},
				"reassign": func(h held) {
					req := hand(work.Reassign, h.ID)
					req.Owner = "ann"
					t.must(req)
				},
				"replay": func(h held) {
					t.must(hand(work.Cancel, h.ID))
					t.must(hand(work.Replay, h.ID))
				},
			} {
				t.addMany(1, name, "p")
				c := claimOf(name)
				c.TTL = t.lapsing()
				got := t.claim(c)
				if len(got) != 1 {
					t.Fatalf("%s: a claim got %d items", name, len(got))
				}
				t.claimSome(1, 0, name) // the ledger may forget the partition
				back(held{got[0], c.Secret})
				t.claimSome(1, 1, name)
			}
		}},
		{"each partition has its limit", func(t *trial) {
			t.govern(limit("q", work.EachPartition, work.Limit{Running: 2}))
			t.govern(limit("q", "big", work.Limit{Running: 3}))
			for _, p := range []string{"a", "b", "big", ""} {
				t.addMany(5, "q", p)
			}
			all := t.claimSome(100, 12, "q") // 2 and 2 and 3, and 5 without a partition
			t.claimSome(100, 0, "q")
			for _, h := range all {
				if h.Partition == "a" {
					t.must(h.by(work.Complete))
				}
			}
			for _, h := range t.claimSome(100, 2, "q") {
				if h.Partition != "a" {
					t.Fatalf("a claim got an item of partition %q, which is full", h.Partition)
				}
			}
			t.govern(limit("q", "big", work.Limit{})) // the rule for each binds it again
			t.claimSome(100, 0, "q")
		}},
		{"a limit of the queue binds its partitions together", func(t *trial) {
			t.govern(limit("q", "", work.Limit{Running: 4}))
			t.govern(limit("q", work.EachPartition, work.Limit{Running: 3}))
			t.addMany(9, "q", "a")
			t.addMany(9, "q", "b")
			t.claimSome(100, 4, "q")
		}},
		{"a partition is paused, and resumed", func(t *trial) {
			pause := change(work.Pause, "q")
			pause.Partition = "a"
			t.addMany(3, "q", "a")
			t.addMany(3, "q", "b")
			t.govern(pause)
			t.claimSome(100, 3, "q")
			t.addMany(1, "q", "a")
			t.claimSome(100, 0, "q")
			pause.Verb = work.Resume
			t.govern(pause)
			t.tick()
			t.claimSome(100, 4, "q")
		}},
		{"as many of a partition start in an interval as may", func(t *trial) {
			if t.Advance == nil {
				t.Skip("the check needs a clock that it can move")
			}
			t.govern(limit("q", work.EachPartition, work.Limit{Starts: 2, Interval: 100 * time.Second}))
			t.addMany(6, "q", "a")
			t.addMany(1, "q", "b")
			t.claimSome(100, 3, "q")
			t.claimSome(100, 0, "q")
			t.Advance(101*time.Second + time.Microsecond)
			t.claimSome(100, 2, "q")
			t.claimSome(100, 0, "q")
			t.govern(limit("q", work.EachPartition, work.Limit{}))
			t.tick()
			t.claimSome(100, 2, "q")
		}},
		{"claims of many keep the limit of a partition", func(t *trial) { t.crowd("q", "p", 2, work.EachPartition) }},
		{"a full partition at the front holds up none behind it", func(t *trial) {
			n := t.many(30, 12)
			t.govern(limit("q", work.EachPartition, work.Limit{Running: 1}))
			for i := range n {
				t.addMany(2, "q", fmt.Sprintf("p%d", i))
				t.tick()
			}
			first := t.claimSome(n-1, n-1, "q") // all but one run, and have more
			t.tick()
			t.claimSome(n, 1, "q")
			t.must(first[0].by(work.Complete))
			t.tick()
			t.claimSome(n, 1, "q")
		}},
		{"partitions of several queues are claimed together", func(t *trial) {
			t.addMany(20, "q", "a")
			t.addMany(20, "r", "a")
			t.addMany(20, "s", "")
			t.claimSome(60, 60, "q", "r", "s")
		}},
	}
}
