package history

import (
	"slices"
	"time"
)

// Law names what was broken.
type Law string

// The laws that histories are held against.
const (
	// there is an order of the requests on a key that explains all answers
	Register Law = "the store is one register"
	// one grant per token, one token per grant, later grants above earlier ones
	Tokens    Law = "tokens only go up"
	Exclusion Law = "one holder at a time" // nobody is sure to hold a key that another has been granted
	// no admitted write carries a token below one admitted or raised before it
	Order      Law = "no older owner is admitted"
	NoFalse    Law = "no refusal without a reason" // who is refused as stale has been overtaken
	NothingWas Law = "a refused write did nothing"
	Kept       Law = "no update is lost"       // what was confirmed is there, and what came after was made from it
	Once       Law = "no update happens twice" // not even when it is sent twice
)

// Violation is a law broken in the history of a key, and the operations that show it.
type Violation struct {
	Law  Law
	Key  string
	Text string
	Ops  []Op
}

func (v Violation) String() string {
	s := string(v.Law) + ": " + v.Key + ": " + v.Text
	for _, op := range v.Ops {
		s += "\n\t" + op.String()
	}
	return s
}

// Terms say what a history can be held against. The zero Terms are all laws.
type Terms struct {
	// Unguarded leaves out what guards promise.
	Unguarded bool
	// Untimed leaves out what rests on the store's clock: that it went at the pace of the holders' own, and did not step.
	Untimed bool
	// Patience bounds the search for an order of the requests on one key; default 2 minutes. A search that does not end counts as a violation: what has not been
	// shown to be right is not.
	Patience time.Duration
}

// Check holds the operations of all processes against the laws, and returns what it finds in the order of keys.
func Check(ops []Op, t Terms) []Violation {
	if t.Patience <= 0 {
		t.Patience = 2 * time.Minute
	}
	var found []Violation
	for _, key := range Keys(ops) {
		mine := of(ops, key)
		found = append(found, checkTokens(key, mine)...)
		found = append(found, checkRegister(key, mine, t)...)
		if !t.Untimed {
			found = append(found, checkExclusion(key, mine)...)
		}
		if !t.Unguarded {
			found = append(found, checkOrder(key, mine)...)
			found = append(found, checkUpdates(key, mine)...)
		}
	}
	return found
}

// Keys lists the keys in a history, sorted.
func Keys(ops []Op) []string {
	seen := map[string]bool{}
	var keys []string
	for _, op := range ops {
		if op.Key != "" && !seen[op.Key] {
			seen[op.Key] = true
			keys = append(keys, op.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// of are the operations that concern a key: its own, and what happened to all.
func of(ops []Op, key string) []Op {
	var mine []Op
	for _, op := range ops {
		if op.Key == key || op.Key == "" {
			mine = append(mine, op)
		}
	}
	return mine
}
