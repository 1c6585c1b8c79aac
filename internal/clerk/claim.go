package clerk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ClaimTx is an open transaction of a database, for claims from queues that
// have rules or partitions. Until it ends, no other claim takes items of a
// queue that has rules. After any error the caller must roll it back.
type ClaimTx interface {
	// Now returns the time on the ledger's clock.
	Now(ctx context.Context) (time.Time, error)
	// Ruled reports whether any rule of a queue is about partitions.
	Ruled(ctx context.Context, queue string) (bool, error)
	// Rules reads the rules of a queue about these partitions.
	Rules(ctx context.Context, queue string, partitions []string) ([]work.Rule, error)
	// Running counts the running items of partitions, or of the whole queue for
	// the empty name. It leaves out those without any.
	Running(ctx context.Context, queue string, partitions []string) (map[string]int, error)
	// Starts reads the starts that were counted for partitions, or for the
	// queue for the empty name.
	Starts(ctx context.Context, queue string, partitions []string) ([]Start, error)
	// KeepStart adds to the starts that are counted. It forgets those of the
	// same partition that were counted at the time until or before.
	KeepStart(ctx context.Context, s Start, until time.Time) error

	// Level returns the highest priority below the given one at which an item
	// or a partition waits. If there is none, it returns a number below all
	// priorities.
	Level(ctx context.Context, queue string, below int) (int, error)
	// Turns reads the next n partitions at a priority that wait at now, behind
	// the given one. The longest wait comes first, then the name.
	Turns(ctx context.Context, queue string, level int, now time.Time, after Turn, n int) ([]Turn, error)
	// Ready locks and reads the next ready items of each partition behind a
	// cursor, at most n of each. It leaves out items that others have locked.
	Ready(ctx context.Context, queue string, level int, now time.Time, after []Cursor, n int) (
		[]work.Item, Damage, error)
	// Wait lets partitions wait since other times.
	Wait(ctx context.Context, queue string, level int, turns []Turn) error
	// Settle lets partitions wait since their first item is ready, and forgets
	// those in which nothing waits.
	Settle(ctx context.Context, queue string, level int, now time.Time, partitions []string) error

	// Grant writes items that the claim has taken.
	Grant(ctx context.Context, items []work.Item) error
}

// Start is a number of starts that are counted at one time.
type Start struct {
	Queue, Partition string
	Slot             time.Time
	N                int
}

// Turn says since when a partition waits.
type Turn struct {
	Partition string
	Since     time.Time
}

// Cursor is the last item that was read of a partition.
type Cursor struct {
	Partition string
	Ready     time.Time
	ID        work.ID
}

// never is when a paused partition has its turn.
var never = time.UnixMicro(1 << 60).UTC()

// leastPage is how many partitions are looked at together if rules may keep
// some of them from having their turn.
const leastPage = 50

// claimer is one claim under way.
type claimer struct {
	ctx    context.Context
	tx     ClaimTx
	claim  work.Claim
	now    time.Time
	queues []*queue
	seen   []seen
	taken  []work.Item
}

// seen are the partitions of a queue that the claim has read at one priority.
type seen struct {
	queue string
	level int
	lanes map[string]*lane
}

// queue is one queue of a claim.
type queue struct {
	name  string
	gate  *work.Gate
	ruled bool // partitions may have rules
	lanes map[string]*lane
}

// lane is a partition at one priority.
type lane struct {
	Turn
	after Cursor
	ready []work.Item // those that the claim may take
	more  bool        // there may be more behind the cursor
	taken int
}

// Claim takes items by the law of package work, from queues that may have rules
// and partitions. The caller has checked the claim.
func Claim(ctx context.Context, tx ClaimTx, c work.Claim, now time.Time) ([]work.Item, error) {
	k := &claimer{ctx: ctx, tx: tx, claim: c, now: now}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(c.Queues))) {
		q := &queue{name: name, gate: work.NewGate(now)}
		var err error
		if q.ruled, err = tx.Ruled(ctx, name); err != nil {
			return nil, err
		}
		if err := k.tell(q, "", work.EachPartition); err != nil {
			return nil, err
		}
		k.queues = append(k.queues, q)
	}
	for level := work.MaxPriority + 1; len(k.taken) < c.Limit; {
		var err error
		if level, err = k.nextLevel(level); err != nil {
			return nil, err
		}
		if level < -work.MaxPriority {
			break
		}
		if err := k.takeAt(level); err != nil {
			return nil, err
		}
	}
	if len(k.taken) > 0 {
		if err := k.grant(); err != nil {
			return nil, err
		}
	}
	return k.taken, k.served()
}

// grant grants what the claim takes. An item that does not run any more has
// ended before the claim has counted, so the items that take its place begin
// after that.
func (k *claimer) grant() error {
	now, err := k.tx.Now(k.ctx)
	if err != nil {
		return err
	}
	k.now = tenure.Time(now)
	for i, it := range k.taken {
		if k.taken[i], err = work.Grant(it, k.claim, k.now); err != nil {
			return err
		}
	}
	if err := k.tx.Grant(k.ctx, k.taken); err != nil {
		return err
	}
	return k.keepStarts()
}

// tell tells the gate of a queue the rules about partitions, and what these
// rules count.
func (k *claimer) tell(q *queue, partitions ...string) error {
	rules, err := k.tx.Rules(k.ctx, q.name, partitions)
	if err != nil {
		return err
	}
	for _, r := range rules {
		q.gate.Rule(r)
	}
	var running, starts []string
	for _, p := range partitions {
		if p == work.EachPartition {
			continue
		}
		r := q.gate.RuleOf(p)
		if r.Running > 0 {
			running = append(running, p)
		}
		if r.Starts > 0 {
			starts = append(starts, p)
		}
	}
	if len(running) > 0 {
		counts, err := k.tx.Running(k.ctx, q.name, running)
		if err != nil {
			return err
		}
		for p, n := range counts {
			q.gate.Running(p, n)
		}
	}
	if len(starts) > 0 {
		counted, err := k.tx.Starts(k.ctx, q.name, starts)
		if err != nil {
			return err
		}
		for _, s := range counted {
			q.gate.Started(s.Partition, s.Slot, s.N)
		}
	}
	return nil
}

// nextLevel returns the highest priority below the given one at which a queue
// may have items for the claim.
func (k *claimer) nextLevel(below int) (int, error) {
	level := -work.MaxPriority - 1
	for _, q := range k.queues {
		if q.gate.Left("") == 0 {
			continue
		}
		next, err := k.tx.Level(k.ctx, q.name, below)
		if err != nil {
			return 0, err
		}
		level = max(level, next)
	}
	return level, nil
}

// takeAt takes items of one priority.
func (k *claimer) takeAt(level int) error {
	var ready []work.Item
	since := map[[2]string]time.Time{}
	for _, q := range k.queues {
		q.lanes = map[string]*lane{}
		room := min(k.claim.Limit-len(k.taken), q.gate.Left(""))
		if room == 0 {
			continue
		}
		// Items without a partition are read like a partition of their own.
		alone := &lane{more: true}
		if err := k.read(q, level, room, alone); err != nil {
			return err
		}
		ready = append(ready, alone.ready...)
		if err := k.gather(q, level, room); err != nil {
			return err
		}
		for name, l := range q.lanes {
			ready = append(ready, l.ready...)
			since[[2]string{q.name, name}] = l.Since
		}
	}
	work.Turns(ready, func(queue, partition string, _ int) time.Time { return since[[2]string{queue, partition}] })
	byName := map[string]*queue{}
	for _, q := range k.queues {
		byName[q.name] = q
	}
	for _, it := range ready {
		q := byName[it.Queue]
		if len(k.taken) == k.claim.Limit {
			break
		}
		if !q.gate.Admits(it.Partition) {
			continue
		}
		q.gate.Take(it.Partition)
		if l := q.lanes[it.Partition]; l != nil {
			l.taken++
		}
		k.taken = append(k.taken, it)
	}
	for _, q := range k.queues {
		k.seen = append(k.seen, seen{q.name, level, q.lanes})
	}
	return nil
}

// gather reads the partitions that are next, and their items: enough for a
// claim of room items.
func (k *claimer) gather(q *queue, level, room int) error {
	var after Turn
	for found := 0; found < room; {
		n := room - found
		if q.ruled {
			n = max(n, leastPage)
		}
		turns, err := k.tx.Turns(k.ctx, q.name, level, k.now, after, n)
		if err != nil {
			return err
		}
		open, err := k.open(q, level, turns)
		if err != nil {
			return err
		}
		for len(open) > 0 && found < room {
			some := open[:min(room-found, len(open))]
			open = open[len(some):]
			if err := k.read(q, level, 1, some...); err != nil {
				return err
			}
			for _, l := range some {
				q.lanes[l.Partition] = l
				if len(l.ready) > 0 {
					found++
				}
			}
		}
		if len(turns) < n {
			return k.fill(q, level, room-found)
		}
		after = turns[n-1]
	}
	return nil
}

// open returns the partitions whose rules let the claim take something. The
// others have their turn when their rules let them.
func (k *claimer) open(q *queue, level int, turns []Turn) ([]*lane, error) {
	if len(turns) == 0 {
		return nil, nil
	}
	names := make([]string, len(turns))
	for i, t := range turns {
		names[i] = t.Partition
	}
	if q.ruled {
		if err := k.tell(q, names...); err != nil {
			return nil, err
		}
	}
	var open []*lane
	var later []Turn
	for _, t := range turns {
		switch opens := q.gate.Opens(t.Partition); {
		case q.gate.Left(t.Partition) > 0:
			open = append(open, &lane{Turn: t, after: Cursor{Partition: t.Partition}, more: true})
		case q.gate.RuleOf(t.Partition).Paused:
			later = append(later, Turn{t.Partition, never})
		case opens.After(k.now):
			later = append(later, Turn{t.Partition, opens})
		}
	}
	if len(later) == 0 {
		return open, nil
	}
	return open, k.tx.Wait(k.ctx, q.name, level, later)
}

// fill reads more items of the partitions, if there are too few partitions for
// one item each.
func (k *claimer) fill(q *queue, level, missing int) error {
	for missing > 0 {
		var some []*lane
		for _, l := range q.lanes {
			if l.more && len(l.ready) > 0 && len(l.ready) < q.gate.Left(l.Partition) {
				some = append(some, l)
			}
		}
		if len(some) == 0 {
			return nil
		}
		before := 0
		for _, l := range some {
			before += len(l.ready)
		}
		if err := k.read(q, level, (missing+len(some)-1)/len(some), some...); err != nil {
			return err
		}
		for _, l := range some {
			missing -= min(len(l.ready), q.gate.Left(l.Partition))
		}
		missing += before
	}
	return nil
}

// read reads n more items of each partition that the claim may take, as far as
// there are any.
func (k *claimer) read(q *queue, level, n int, lanes ...*lane) error {
	want := map[*lane]int{}
	for _, l := range lanes {
		want[l] = len(l.ready) + n
	}
	for {
		of := map[string]*lane{}
		var after []Cursor
		for _, l := range lanes {
			if l.more && len(l.ready) < want[l] {
				of[l.Partition], after = l, append(after, l.after)
			}
		}
		if len(after) == 0 {
			return nil
		}
		items, damage, err := k.tx.Ready(k.ctx, q.name, level, k.now, after, n)
		if err != nil {
			return err
		}
		read := map[*lane]int{}
		for _, it := range items {
			l := of[it.Partition]
			if l == nil {
				return fmt.Errorf("item %s of partition %q was read as one of another", it.ID, it.Partition)
			}
			read[l]++
			l.after.move(it.Ready, it.ID)
			if k.claim.Grantable(it, k.now) {
				l.ready = append(l.ready, it)
			}
		}
		for _, bad := range damage { // it is nobody's, and the others go on
			l := of[bad.Partition]
			if l == nil {
				return bad
			}
			read[l]++
			l.after.move(bad.Ready, bad.Item)
		}
		for _, l := range of {
			l.more = read[l] == n
		}
	}
}

// move moves the cursor to an item behind it.
func (c *Cursor) move(ready time.Time, id work.ID) {
	if ready.After(c.Ready) || ready.Equal(c.Ready) && id > c.ID {
		c.Ready, c.ID = ready, id
	}
}

// served lets the partitions that gave an item wait anew, and settles those
// that have nothing more to give.
func (k *claimer) served() error {
	for _, s := range k.seen {
		var turns []Turn
		var settle []string
		for _, name := range slices.Sorted(maps.Keys(s.lanes)) {
			switch l := s.lanes[name]; {
			case !l.more && l.taken == len(l.ready):
				settle = append(settle, name)
			case l.taken > 0:
				turns = append(turns, Turn{name, k.now})
			}
		}
		if len(turns) > 0 {
			if err := k.tx.Wait(k.ctx, s.queue, s.level, turns); err != nil {
				return err
			}
		}
		if len(settle) > 0 {
			if err := k.tx.Settle(k.ctx, s.queue, s.level, k.now, settle); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepStarts counts what the claim has started, where a rule bounds the starts.
func (k *claimer) keepStarts() error {
	for _, q := range k.queues {
		counts := map[string]int{}
		for _, it := range k.taken {
			if it.Queue != q.name {
				continue
			}
			counts[""]++
			if it.Partition != "" {
				counts[it.Partition]++
			}
		}
		for p, n := range counts {
			r := q.gate.RuleOf(p)
			if r.Starts == 0 {
				continue
			}
			s := Start{Queue: q.name, Partition: p, Slot: r.Slot(k.now), N: n}
			if err := k.tx.KeepStart(k.ctx, s, k.now.Add(-r.Interval)); err != nil {
				return err
			}
		}
	}
	return nil
}
