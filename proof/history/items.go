package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// Queue is the law of an item: some order of the requests explains all answers.
const Queue Law = "an item has one owner, and one result"

// The verbs of items that are not requests of the ledger's law.
const (
	Claimed work.Verb = "claim" // the item was among those that a claim was granted
	Got     work.Verb = "get"   // the item was read
)

// ItemOp is an operation on one item as its process saw it. The process asks
// again until the answer is certain, so each operation has one.
type ItemOp struct {
	Process string
	Item    work.ID
	Verb    work.Verb
	// Token is that of the owner who asks, or the one that was granted. It is
	// zero for Add, for a refused Takeover, and for Got.
	Token fence.Token
	// Copies is how often the request was sent. A server gives back what it
	// claims for a client that has left, so a grant that needed several copies
	// may end by itself.
	Copies  int
	Refused bool
	// Done is set if the item that was read is done. Result is the result that
	// a Complete writes, or that was read.
	Done       bool
	Result     string
	Begin, End int64 // nanoseconds of the machine's boot clock
}

func (o ItemOp) String() string {
	s := fmt.Sprintf("%s: %s", o.Process, o.Verb)
	if o.Token != 0 {
		s += fmt.Sprintf(" under %d", o.Token)
	}
	if o.Result != "" {
		s += fmt.Sprintf(" %q", o.Result)
	}
	if o.Refused {
		s += ", refused"
	}
	if o.Verb == Got && !o.Done {
		s += ", not done"
	}
	return fmt.Sprintf("%s (%d times, %s)", s, o.Copies, time.Duration(o.End-o.Begin).Round(time.Millisecond))
}

// entry is the state of one item, as far as the answers reveal it.
type entry struct {
	added   bool
	running bool
	done    bool
	token   fence.Token // the newest that an answer shows
	result  string
}

// mine reports whether an owner's grant is the one under which the item runs.
func (e entry) mine(o ItemOp) bool { return e.running && e.token == o.Token }

// maybeBack is the verb of a step: the server may have given the grant back.
const maybeBack work.Verb = "given back, perhaps"

// after returns every state that may follow the operation, and none if it
// cannot have had this answer.
func (e entry) after(o ItemOp) []any {
	waiting := e
	waiting.running = false
	if e.added == (o.Verb == work.Add) { // an item is added first, and once
		return nil
	}
	switch o.Verb {
	case work.Add:
		e.added = true
		return []any{e}
	case Claimed, work.Takeover:
		if o.Refused { // a takeover
			if !e.done {
				return nil
			}
			return []any{e}
		}
		if e.done || o.Token <= e.token || e.running && o.Verb == Claimed {
			return nil
		}
		e.running, e.token = true, o.Token
		return []any{e}
	case maybeBack:
		if e.mine(o) {
			return []any{e, waiting}
		}
		return []any{e}
	case Got:
		if o.Done != e.done || o.Done && o.Result != e.result {
			return nil
		}
		return []any{e}
	case work.Complete:
		switch {
		case o.Refused && (e.mine(o) || e.done && e.token == o.Token):
			return nil
		case o.Refused:
			return []any{e}
		case !e.mine(o):
			return nil
		}
		e.running, e.done, e.result = false, true, o.Result
		return []any{e}
	case work.Fail, work.Release:
		switch {
		case e.mine(o) && o.Refused && o.Copies < 2:
			return nil
		case e.mine(o): // if refused, a former copy had the effect
			return []any{waiting}
		case o.Refused:
			return []any{e}
		}
		return nil
	case work.Heartbeat:
		if e.mine(o) == o.Refused {
			return nil
		}
		return []any{e}
	}
	return nil
}

var itemModel = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{entry{}} },
	Step:  func(state, input, _ any) []any { return state.(entry).after(input.(ItemOp)) },
	Equal: func(a, b any) bool { return a.(entry) == b.(entry) },
}

// CheckItems checks the operations on items. Each must have taken effect at one
// moment between its beginning and its end, and an order of these moments must
// explain all answers.
func CheckItems(ops []ItemOp, patience time.Duration) (found []Violation) {
	by := map[work.ID][]ItemOp{}
	last := int64(0)
	for _, o := range ops {
		by[o.Item] = append(by[o.Item], o)
		last = max(last, o.End+1)
	}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		mine := by[id]
		slices.SortStableFunc(mine, func(a, b ItemOp) int { return cmp.Compare(a.Begin, b.Begin) })
		var steps []porcupine.Operation
		processes := map[string]int{}
		add := func(o ItemOp, end int64) {
			if _, known := processes[o.Process]; !known {
				processes[o.Process] = len(processes)
			}
			client := processes[o.Process]
			steps = append(steps, porcupine.Operation{ClientId: client, Input: o, Call: o.Begin, Return: end})
		}
		for _, o := range mine {
			add(o, o.End)
			if o.Verb == Claimed && o.Copies > 1 {
				o.Verb, o.Process = maybeBack, o.Process+"'s server"
				add(o, last)
			}
		}
		switch porcupine.CheckOperationsTimeout(itemModel.ToModel(), steps, patience) {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			found = append(found, Violation{
				Law: Queue, Key: string(id),
				Text: fmt.Sprintf(
					"no order of %d steps was found within %s; that counts as broken", len(steps), patience,
				),
			})
			continue
		}
		text := fmt.Sprintf("no order explains all answers to these %d requests", len(mine))
		for _, o := range mine {
			text += "\n\t" + o.String()
		}
		found = append(found, Violation{Law: Queue, Key: string(id), Text: text})
	}
	return found
}
