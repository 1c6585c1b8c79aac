package work

import (
	"math"
	"slices"
	"time"
)

// Gate is the law of rules for one claim and one queue: it decides which items
// the claim may take, given the queue's rules and what runs already.
//
// The claim and everything that the gate was told must be one atomic step: no
// other claim may take items of the queue meanwhile. So a ledger lets one claim
// at a time through the rules of a queue.
type Gate struct {
	now     time.Time
	rules   map[string]Rule // by partition
	running map[string]int  // by partition; "" is the whole queue
	started map[string][]slot
}

// slot is a number of starts that are counted at one time.
type slot struct {
	at time.Time
	n  int
}

// NewGate makes a gate for a claim at now.
func NewGate(now time.Time) *Gate {
	return &Gate{
		now: now, rules: map[string]Rule{}, running: map[string]int{}, started: map[string][]slot{},
	}
}

// Rule tells the gate a rule of the queue.
func (g *Gate) Rule(r Rule) { g.rules[r.Partition] = r }

// Running tells the gate how many items run: in a partition, or in the whole
// queue if partition is empty.
func (g *Gate) Running(partition string, n int) { g.running[partition] = n }

// Started tells the gate of starts that were counted at a time, as
// [Limit.Slot] returned it.
func (g *Gate) Started(partition string, at time.Time, n int) {
	g.started[partition] = append(g.started[partition], slot{at, n})
}

// RuleOf returns the rule that binds a partition, or that of the queue if
// partition is empty. It is zero if none does.
func (g *Gate) RuleOf(partition string) Rule {
	r := g.rules[partition]
	if partition != "" && !r.Restricts() {
		r = g.rules[EachPartition]
	}
	return r
}

// Left returns how many more items a claim may take by the rule of a partition,
// or by that of the queue if partition is empty.
func (g *Gate) Left(partition string) int {
	r := g.RuleOf(partition)
	left := math.MaxInt
	switch {
	case r.Paused:
		return 0
	case r.Running > 0:
		left = max(r.Running-g.running[partition], 0)
	}
	if r.Starts > 0 {
		counted := 0
		for _, s := range g.started[partition] {
			if s.at.Add(r.Interval).After(g.now) {
				counted += s.n
			}
		}
		left = min(left, max(r.Starts-counted, 0))
	}
	return left
}

// Admits reports whether the claim may take an item of a partition, or one
// without a partition if that is empty.
func (g *Gate) Admits(partition string) bool {
	return g.Left("") > 0 && (partition == "" || g.Left(partition) > 0)
}

// Opens returns the time from which the number of starts lets a claim take
// another item of a partition. That is the gate's own time if it does now.
func (g *Gate) Opens(partition string) time.Time {
	r := g.RuleOf(partition)
	slots := slices.Clone(g.started[partition])
	slices.SortFunc(slots, func(a, b slot) int { return a.at.Compare(b.at) })
	counted, opens := 0, g.now
	for _, s := range slots {
		if s.at.Add(r.Interval).After(g.now) {
			counted += s.n
		}
	}
	for _, s := range slots {
		if at := s.at.Add(r.Interval); at.After(g.now) && r.Starts > 0 && counted >= r.Starts {
			counted, opens = counted-s.n, at
		}
	}
	return opens
}

// Take counts an item of a partition that the claim takes.
func (g *Gate) Take(partition string) {
	for _, p := range []string{"", partition} {
		g.running[p]++
		if r := g.RuleOf(p); r.Starts > 0 {
			g.Started(p, r.Slot(g.now), 1)
		}
		if partition == "" {
			break
		}
	}
}

// Turns sorts the items that a claim may take into the order of claims. The
// items are ready.
//
// The highest priority comes first. Within a priority, items without a
// partition have waited since they are ready. A partition has waited since its
// last start, or since its oldest item is ready if that is later. The longest
// wait comes first. A partition that gives an item goes behind all others, and
// gives its next item when its turn has come again. So one partition with a
// million items does not hide another with ten.
//
// last returns the time of a partition's last start at a priority, or the zero
// time. A ledger may forget it when nothing waits there.
func Turns(items []Item, last func(queue, partition string, priority int) time.Time) {
	type group struct {
		queue, partition string
		priority         int
	}
	type turn struct {
		Item
		since time.Time // for how long the partition had waited before its first turn in this claim
		round int
	}
	order := func(a, b Item) int {
		if a.Before(b) {
			return -1
		}
		return 1
	}
	slices.SortFunc(items, order)
	rounds, first := map[group]int{}, map[group]time.Time{}
	turns := make([]turn, len(items))
	for i, it := range items {
		turns[i] = turn{Item: it, since: it.Ready}
		if it.Partition == "" {
			continue
		}
		g := group{it.Queue, it.Partition, it.Priority}
		if _, known := first[g]; !known {
			first[g] = it.Ready
			if at := last(g.queue, g.partition, g.priority); at.After(it.Ready) {
				first[g] = at
			}
		}
		turns[i].since, turns[i].round = first[g], rounds[g]
		rounds[g]++
	}
	slices.SortFunc(turns, func(a, b turn) int {
		switch {
		case a.Priority != b.Priority:
			return b.Priority - a.Priority
		case a.round != b.round: // in later rounds all have waited since now
			return a.round - b.round
		case !a.since.Equal(b.since):
			return a.since.Compare(b.since)
		case a.Partition != b.Partition:
			if a.Partition < b.Partition {
				return -1
			}
			return 1
		}
		return order(a.Item, b.Item)
	})
	for i, t := range turns {
		items[i] = t.Item
	}
}
