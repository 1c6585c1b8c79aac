package worktest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// step sends one request. It compares the answer, and the state that the ledger
// then keeps, with the law.
func (t *trial) step(req work.Request) work.Answer {
	t.Helper()
	return t.steps(req)[0]
}

// must is a step that has to succeed.
func (t *trial) must(req work.Request) work.Answer {
	t.Helper()
	a := t.step(req)
	if a.Err != nil {
		t.Fatalf("%s: %v; the check expected it to succeed", req.Verb, a.Err)
	}
	return a
}

// known is everything that the ledger keeps about one item.
type known struct {
	item     work.Item
	effects  []work.Effect
	refusals []work.Refusal // newest first
}

func (t *trial) known(id work.ID) known {
	t.Helper()
	return known{item: t.get(id), effects: t.effectsOf(id), refusals: t.refusalsOf(id)}
}

// steps sends a batch while nobody else uses its items, and compares all of it
// with the law. Requests on one item take effect in their order.
func (t *trial) steps(requests ...work.Request) []work.Answer {
	t.Helper()
	kept := map[work.ID]*known{}
	for _, req := range requests {
		if req.ID.Valid() && kept[req.ID] == nil {
			k := t.known(req.ID)
			kept[req.ID] = &k
		}
	}
	alias := t.aliases(requests, kept)
	answers := t.apply(t.ledger, requests...)
	for i, req := range requests {
		if k := kept[req.ID]; k != nil {
			if other := alias(req); other != nil && k.item.IsZero() {
				k = other
			}
			t.judge(k, req, answers[i])
		} else if !errors.Is(answers[i].Err, fence.ErrInvalid) {
			t.Fatalf("%s of the id %q: %v; want invalid", req.Verb, req.ID, answers[i].Err)
		}
	}
	for id, want := range kept {
		got := t.known(id)
		if d := suite.Differ(want.item, got.item); d != "" {
			t.Fatalf("after %s: the item kept is not the law's: %s", verbs(requests), d)
		}
		if d := suite.Differ(want.effects, got.effects); d != "" {
			t.Fatalf("after %s: the effects kept are not the law's: %s", verbs(requests), d)
		}
		if d := suite.Differ(want.refusals, got.refusals); d != "" {
			t.Fatalf("after %s: the refusals kept are not the law's: %s", verbs(requests), d)
		}
	}
	return answers
}

// aliases returns a function that finds the item with a request's idempotency
// key, among the kept items and those in the ledger.
func (t *trial) aliases(requests []work.Request, kept map[work.ID]*known) func(req work.Request) *known {
	t.Helper()
	for _, req := range requests {
		if req.Verb != work.Add || req.Unique == "" || req.Check() != nil {
			continue
		}
		for _, it := range collect(t, "List", t.ledger.List(t.ctx, work.Query{Queue: req.Queue})) {
			if it.Unique == req.Unique && kept[it.ID] == nil {
				k := t.known(it.ID)
				kept[it.ID] = &k
			}
		}
	}
	return func(req work.Request) *known {
		for _, k := range kept {
			if req.Verb == work.Add && req.Unique != "" && k.item.Queue == req.Queue && k.item.Unique == req.Unique {
				return k
			}
		}
		return nil
	}
}

// judge compares an answer with the law's, and updates k to what the law
// leaves.
func (t *trial) judge(k *known, req work.Request, got work.Answer) {
	t.Helper()
	if errors.Is(got.Err, work.ErrUnknown) {
		t.Fatalf("%s: %v; nothing stood in the way of an answer", req.Verb, got.Err)
	}
	if bad := req.Check(); bad != nil {
		if d := differentErrors(bad, got.Err); d != "" {
			t.Fatalf("%s: %s", req.Verb, d)
		}
		return
	}
	if flaw := suite.BadTime(got.Now); flaw != "" {
		t.Fatalf("%s: the answer's Now %s", req.Verb, flaw)
	}
	before := k.item
	out, err := work.Apply(before, req, got.Now)
	if d := differentErrors(err, got.Err); d != "" {
		t.Fatalf("%s of an item that is %q: %s", req.Verb, before.State, d)
	}
	if want := err == nil && !out.Changed; want != got.Repeated {
		t.Fatalf("%s: Repeated is %v, the law's is %v", req.Verb, got.Repeated, want)
	}
	want := briefly(out.Item, req.Verb, got.Repeated)
	if d := suite.Differ(want, briefly(got.Item, req.Verb, got.Repeated)); d != "" {
		t.Fatalf("%s: the answer's item is not the law's: %s", req.Verb, d)
	}
	k.item = out.Item
	for _, e := range out.Effects {
		if !slices.ContainsFunc(k.effects, func(o work.Effect) bool { return o.EffectID == e.EffectID }) {
			k.effects = append(k.effects, e)
		}
	}
	slices.SortFunc(k.effects, func(a, b work.Effect) int { return a.Compare(b.EffectID) })
	if out.Refusal != nil {
		k.refusals = append([]work.Refusal{*out.Refusal}, k.refusals...)
	}
}

// briefly returns the part of an item that every answer to the verb has.
func briefly(it work.Item, verb work.Verb, repeated bool) work.Item {
	r := it.Record
	brief := work.Item{
		ID: it.ID, Queue: it.Queue, State: it.State, Attempts: it.Attempts, Limit: it.Limit, Generation: it.Generation,
		Record: tenure.Record{
			Token: r.Token, Grant: r.Grant, Owner: r.Owner, State: r.State, Cause: r.Cause, Ended: r.Ended,
			Deadline: r.Deadline,
		},
	}
	if repeated {
		brief.Result = it.Result
	}
	if verb.ByHand() || verb == work.Requeue {
		brief.Guards, brief.Record.Terms, brief.Record.History = it.Guards, r.Terms, r.History
	}
	return brief
}

// claim claims items while nobody else does. It compares the items claimed, and
// those left, with the law.
func (t *trial) claim(c work.Claim) []work.Item {
	t.Helper()
	before, rules := t.all(), t.rules()
	earliest := t.now()
	got, err := t.ledger.Claim(t.ctx, c)
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	latest := t.now()
	t.judgeClaim(c, before, rules, got, earliest, latest)
	return got
}

// all reads every item with all its fields.
func (t *trial) all() map[work.ID]work.Item {
	t.Helper()
	items := map[work.ID]work.Item{}
	for _, it := range collect(t, "List", t.ledger.List(t.ctx, work.Query{})) {
		items[it.ID] = t.get(it.ID)
	}
	return items
}

// rules reads all rules.
func (t *trial) rules() []work.Rule {
	t.Helper()
	return collect(t, "Rules", t.ledger.Rules(t.ctx, work.RuleQuery{}))
}

// start is a start that a rule counts at a time.
type start struct {
	queue, partition string
	at               time.Time
}

// gate returns the gate of a queue for the next claim, given all items before
// it. It knows the starts that this trial has seen.
func (t *trial) gate(queue string, rules []work.Rule, items map[work.ID]work.Item, now time.Time) *work.Gate {
	g := work.NewGate(now)
	for _, r := range rules {
		if r.Queue != queue {
			continue
		}
		g.Rule(r)
	}
	for _, s := range t.starts {
		if s.queue == queue {
			g.Started(s.partition, s.at, 1)
		}
	}
	running := map[string]int{}
	for _, it := range items {
		if it.Queue == queue && it.State == work.Running {
			running[""]++
			if it.Partition != "" {
				running[it.Partition]++
			}
		}
	}
	for p, n := range running {
		g.Running(p, n)
	}
	return g
}

func (t *trial) judgeClaim(
	c work.Claim, before map[work.ID]work.Item, rules []work.Rule, got []work.Item, earliest, latest time.Time,
) {
	t.Helper()
	if len(got) > c.Limit && !c.Again {
		t.Fatalf("a claim of %d got %d items", c.Limit, len(got))
	}
	again := c.Again && slices.ContainsFunc(got, func(it work.Item) bool { return c.Granted(before[it.ID]) })
	taken := map[work.ID]bool{}
	gates := map[string]*work.Gate{} // of what was taken so far, at the time of the claim
	for i, it := range got {
		taken[it.ID] = true
		was := before[it.ID]
		if again {
			if !c.Granted(was) {
				t.Fatalf("a claim sent again got item %s besides what it had been granted", it.ID)
			}
		} else {
			at := it.Record.Acquired
			if at.Before(earliest) || at.After(latest) {
				t.Fatalf("an item was acquired at %s, outside the time of its claim, %s to %s", at, earliest, latest)
			}
			next, err := work.Grant(was, c, at)
			if err != nil {
				t.Fatalf("a claim got item %s, which the law does not grant: %v", it.ID, err)
			}
			if gates[it.Queue] == nil {
				gates[it.Queue] = t.gate(it.Queue, rules, before, at)
			}
			if !gates[it.Queue].Admits(it.Partition) {
				t.Fatalf("a claim got %s of queue %s, partition %q, against the rules %+v", describe(it), it.Queue,
					it.Partition, rules)
			}
			gates[it.Queue].Take(it.Partition)
			for _, p := range slices.Compact([]string{"", it.Partition}) {
				if r := gates[it.Queue].RuleOf(p); r.Starts > 0 {
					t.starts = append(t.starts, start{it.Queue, p, r.Slot(at)})
				}
			}
			was = next
		}
		if d := suite.Differ(was, t.get(it.ID)); d != "" {
			t.Fatalf("after a claim the item kept is not the law's: %s", d)
		}
		was.Record.History, it.Record.History = nil, nil
		if d := suite.Differ(was, it); d != "" {
			t.Fatalf("the item claimed is not the law's: %s", d)
		}
		if i > 0 && earlier(it, got[i-1]) {
			t.Fatalf("a claim got %s before %s, against the order of claims", got[i-1].ID, it.ID)
		}
	}
	for id, it := range before {
		if again && c.Granted(it) && !taken[id] {
			t.Fatalf("a claim sent again did not get item %s, which it had been granted", id)
		}
		if taken[id] || again || !c.Grantable(it, earliest) {
			continue
		}
		g := gates[it.Queue]
		if g == nil {
			g = t.gate(it.Queue, rules, before, earliest)
		}
		if len(got) < c.Limit && g.Admits(it.Partition) {
			t.Fatalf("a claim of %d got %d items and left %s, which is ready", c.Limit, len(got), describe(it))
		}
		for _, other := range got {
			first := it.Queue == other.Queue && it.Priority > other.Priority && g.Admits(it.Partition)
			if first || earlier(it, before[other.ID]) && (other.Queue == it.Queue || g.Admits(it.Partition)) {
				t.Fatalf("a claim left %s and took %s, which comes after it", describe(it), describe(before[other.ID]))
			}
		}
	}
}

// earlier reports whether a claim must take one item before the other. Those of
// different partitions take turns, so the check of fairness is another.
func earlier(a, b work.Item) bool {
	if a.Partition == b.Partition && (a.Partition == "" || a.Queue == b.Queue) {
		return a.Before(b)
	}
	return false
}

func describe(it work.Item) string {
	return fmt.Sprintf("item %s (priority %d, ready %s)", it.ID, it.Priority, it.Ready.Format("15:04:05.000000"))
}

func verbs(requests []work.Request) string {
	var all []work.Verb
	for _, r := range requests {
		all = append(all, r.Verb)
	}
	return fmt.Sprint(all)
}
