package history

import (
	"slices"
	"time"
)

// Law names a broken law.
type Law string

// The laws that histories are checked against.
const (
	// Register: some order of the requests on a key explains all answers.
	Register Law = "the store is one register"
	// Tokens: one grant per token, one token per grant, later grants above
	// earlier ones.
	Tokens Law = "tokens only go up"
	// Exclusion: no client is sure to hold a key that was granted to another.
	Exclusion Law = "one holder at a time"
	// Order: no admitted write carries a token below one admitted or raised
	// before.
	Order Law = "no older owner is admitted"
	// NoFalse: if a guard refuses a stamp as stale, a newer one was presented.
	NoFalse Law = "no refusal without a reason"
	// NothingWas: no update counts if all copies of its write were refused.
	NothingWas Law = "a refused write did nothing"
	// Kept: every confirmed update is there, and later ones were made from it.
	Kept Law = "no update is lost"
	// Once: no update is applied twice, even if its write is sent twice.
	Once Law = "no update happens twice"
)

// Violation is a broken law in the history of one key, with the operations that
// show it.
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

// Scope selects the laws for a check. The zero Scope selects all.
type Scope struct {
	// Unguarded leaves out the laws that guards keep.
	Unguarded bool
	// Untimed leaves out the laws that rest on the store's clock. They need a
	// clock that runs at the same rate as the holders' clocks and does not
	// step.
	Untimed bool
	// Patience limits the search for an order of the requests on one key; the
	// default is 2 minutes. If the search does not end in time, Check reports a
	// violation, because the history has not been shown to be right.
	Patience time.Duration
}

// Check checks the operations of all processes against the laws, and returns
// the violations in the order of keys.
func Check(ops []Op, in Scope) []Violation {
	if in.Patience <= 0 {
		in.Patience = 2 * time.Minute
	}
	var found []Violation
	for _, key := range Keys(ops) {
		mine := of(ops, key)
		found = append(found, checkTokens(key, mine)...)
		found = append(found, checkRegister(key, mine, in)...)
		if !in.Untimed {
			found = append(found, checkExclusion(key, mine)...)
		}
		if !in.Unguarded {
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

// of returns the operations that concern a key: those on the key, and those
// without a key, which concern all keys.
func of(ops []Op, key string) []Op {
	var mine []Op
	for _, op := range ops {
		if op.Key == key || op.Key == "" {
			mine = append(mine, op)
		}
	}
	return mine
}
