package worktest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/work"
)

// change returns an operator's change of a rule.
func change(verb work.Verb, queue string) work.RuleChange {
	return work.RuleChange{Verb: verb, Queue: queue, Actor: "olga", Note: "because"}
}

// govern changes a rule while nobody else does. It compares the answer, and the
// rule that the ledger then keeps, with the law.
func (t *trial) govern(c work.RuleChange) work.Rule {
	t.Helper()
	was := t.rule(c.Queue, c.Partition)
	earliest := t.now()
	got, err := t.ledger.Govern(t.ctx, c)
	if err != nil {
		t.Fatalf("%s: %v", c.Verb, err)
	}
	if got.Changed.Before(earliest) || got.Changed.After(t.now()) {
		t.Fatalf("%s: the rule was changed at %s, outside the time of the call", c.Verb, got.Changed)
	}
	want, err := work.Govern(was, c, got.Changed)
	if err != nil {
		t.Fatalf("%s: the law says %v", c.Verb, err)
	}
	if d := suite.Differ(want, got); d != "" {
		t.Fatalf("%s: the answer is not the law's: %s", c.Verb, d)
	}
	if d := suite.Differ(want, t.rule(c.Queue, c.Partition)); d != "" {
		t.Fatalf("after %s: the rule kept is not the law's: %s", c.Verb, d)
	}
	return got
}

// rule reads one rule. It returns the zero Rule if there is none.
func (t *trial) rule(queue, partition string) work.Rule {
	t.Helper()
	for _, r := range t.rules() {
		if r.Queue == queue && r.Partition == partition {
			return r
		}
	}
	return work.Rule{}
}

func rules() []check {
	return []check{
		{"claims find nothing in a paused queue", func(t *trial) {
			t.must(added("q"))
			t.must(added("other"))
			t.govern(change(work.Pause, "q"))
			t.must(added("q"))
			c := claimOf("q")
			c.Queues, c.Limit = []string{"q", "other"}, 10
			if got := t.claim(c); len(got) != 1 {
				t.Fatalf("one item is in a queue that is not paused, a claim got %d", len(got))
			}
			t.govern(change(work.Resume, "q"))
			c = claimOf("q")
			c.Limit = 10
			if got := t.claim(c); len(got) != 2 {
				t.Fatalf("after the resume a claim got %d of 2 items", len(got))
			}
		}},
		{"items of a paused queue run on", func(t *trial) {
			t.must(added("q"))
			c := claimOf("q")
			h := held{t.claim(c)[0], c.Secret}
			t.govern(change(work.Pause, "q"))
			t.must(h.by(work.Heartbeat))
			c.Again = true
			if got := t.claim(c); len(got) != 1 {
				t.Fatalf("a claim sent again after the pause got %d items of 1", len(got))
			}
			t.must(h.by(work.Complete))
		}},
		{"an item given back to a paused queue stays there", func(t *trial) {
			h := t.running("q")
			t.govern(change(work.Pause, "q"))
			t.must(h.by(work.Release))
			if got := t.claim(claimOf("q")); len(got) != 0 {
				t.Fatalf("a claim got %s", describe(got[0]))
			}
		}},
		{"a queue is paused by every handle, for every handle", func(t *trial) {
			t.must(added("q"))
			other := t.open()
			if _, err := other.Govern(t.ctx, change(work.Pause, "q")); err != nil {
				t.Fatalf("pause: %v", err)
			}
			for _, l := range []work.Ledger{t.ledger, other, t.open()} {
				if got, err := l.Claim(t.ctx, claimOf("q")); err != nil || len(got) != 0 {
					t.Fatalf("a claim got %d items, and %v", len(got), err)
				}
			}
		}},
		{"a rule says who changed it last, and why", func(t *trial) {
			first := t.govern(change(work.Pause, "q"))
			if !first.Paused || first.Actor != "olga" || first.Note != "because" || first.Changed.IsZero() {
				t.Fatalf("the rule is %+v", first)
			}
			t.govern(change(work.Pause, "q")) // several copies have the effect of one
			last := change(work.Resume, "q")
			last.Actor, last.Note = "otto", "all is well"
			if r := t.govern(last); r.Paused || r.Restricts() || r.Actor != "otto" {
				t.Fatalf("the rule is %+v", r)
			}
			t.govern(change(work.Resume, "never/paused"))
		}},
		{"rules are filtered, ordered and limited", func(t *trial) {
			names := []string{"b", "a", "c/d", "c", "é"}
			for _, q := range names {
				t.govern(change(work.Pause, q))
			}
			slices.Sort(names)
			for _, q := range []work.RuleQuery{{}, {Queue: "c"}, {Queue: "none"}, {Limit: 2}} {
				want := names
				switch {
				case q.Queue == "c":
					want = []string{"c"}
				case q.Queue != "":
					want = nil
				case q.Limit > 0:
					want = names[:q.Limit]
				}
				var got []string
				for _, r := range collect(t, "Rules", t.ledger.Rules(t.ctx, q)) {
					got = append(got, r.Queue)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%+v: got %q, want %q", q, got, want)
				}
			}
			for range t.ledger.Rules(t.ctx, work.RuleQuery{}) {
				break
			}
		}},
		{"bad changes of rules are named", func(t *trial) {
			for name, spoil := range map[string]func(c *work.RuleChange){
				"no queue":         func(c *work.RuleChange) { c.Queue = "" },
				"a bad queue":      func(c *work.RuleChange) { c.Queue = "a\x00b" },
				"a strange verb":   func(c *work.RuleChange) { c.Verb = work.Cancel },
				"no actor":         func(c *work.RuleChange) { c.Actor = " " },
				"no note":          func(c *work.RuleChange) { c.Note = "" },
				"a limit to pause": func(c *work.RuleChange) { c.Limit.Running = 1 },
				"fewer than no items": func(c *work.RuleChange) {
					c.Verb, c.Limit.Running = work.SetLimit, -1
				},
				"fewer than no starts": func(c *work.RuleChange) {
					c.Verb, c.Limit = work.SetLimit, work.Limit{Starts: -1, Interval: long}
				},
				"starts in no time": func(c *work.RuleChange) { c.Verb, c.Limit.Starts = work.SetLimit, 1 },
				"an interval of nothing": func(c *work.RuleChange) {
					c.Verb, c.Limit.Interval = work.SetLimit, long
				},
				"a pause of each partition": func(c *work.RuleChange) { c.Partition = work.EachPartition },
				"a bad partition":           func(c *work.RuleChange) { c.Partition = "a\x00b" },
				"a long note":               func(c *work.RuleChange) { c.Note = strings.Repeat("x", 1<<16) },
			} {
				c := change(work.Pause, "q")
				spoil(&c)
				if _, err := t.ledger.Govern(t.ctx, c); !errors.Is(err, work.ErrInvalid) {
					t.Fatalf("%s: %v, want invalid", name, err)
				}
			}
			if n := len(t.rules()); n != 0 {
				t.Fatalf("%d rules are kept", n)
			}
			for _, q := range []work.RuleQuery{{Limit: -1}, {Queue: "a\x00b"}, {Queue: "\xff"}} {
				refuses(t, q, t.ledger.Rules(t.ctx, q))
			}
			ended, cancel := context.WithCancel(t.ctx)
			cancel()
			if _, err := t.ledger.Govern(ended, change(work.Pause, "q")); err == nil {
				t.Fatalf("a change was made after its context had ended")
			}
		}},
		{"no claim that begins after a pause gets anything", func(t *trial) {
			ledgers := []work.Ledger{t.ledger, t.open(), t.open()}
			var adds []work.Request
			for range t.many(60, 24) {
				adds = append(adds, added("q"))
			}
			t.apply(t.ledger, adds...)
			paused := make(chan struct{})
			suite.Together(4, func(i int) {
				if i == 3 {
					defer close(paused)
					if _, err := ledgers[0].Govern(t.ctx, change(work.Pause, "q")); err != nil {
						t.Errorf("pause: %v", err)
					}
					return
				}
				for late := false; !late; {
					select {
					case <-paused:
						late = true
					default:
					}
					got, err := ledgers[i].Claim(t.ctx, claimOf("q"))
					if err != nil || late && len(got) > 0 {
						t.Errorf("a claim got %d items and %v, after the pause: %v", len(got), err, late)
						return
					}
				}
			})
		}},
		{"a resume wakes the workers that wait", func(t *trial) {
			t.must(added("q"))
			t.govern(change(work.Pause, "q"))
			t.woken(work.Wanted{Queues: []string{"q"}}, "resume", func() { t.govern(change(work.Resume, "q")) })
		}},
	}
}
