package history

import (
	"fmt"
	"slices"
)

// checkExclusion checks that no client is sure to hold a key after another was
// told of a later grant. It must hold because a holder's own deadline is never
// later than the store's, and the store grants nothing before that. There are
// two exceptions. A store that lost its memory may have granted the key again.
// An operator does not ask the holder, who learns of the act at its next
// renewal.
func checkExclusion(key string, ops []Op) []Violation {
	list, _ := grants(ops)
	var found []Violation
	for _, op := range ops {
		if op.Kind != Holds {
			continue
		}
		token, id := op.Asked()
		var mine *grant
		for _, g := range list {
			if g.id == id && g.token == token {
				mine = g
			}
		}
		if mine == nil {
			found = append(found, Violation{
				Law: Exclusion, Key: key,
				Text: fmt.Sprintf("%s is sure to hold what no answer shows it was granted", op.Process),
				Ops:  []Op{op},
			})
			continue
		}
		for _, g := range list {
			if g.token > token && g.told < op.Begin && !forgotten(ops, mine.asked, op.Begin) && !byHand(list, mine, g) {
				found = append(found, Violation{
					Law: Exclusion, Key: key,
					Text: fmt.Sprintf(
						"%s is sure to hold it with token %d, though token %d was granted before",
						op.Process, token, g.token,
					),
					Ops: []Op{mine.witness, g.witness, op},
				})
				break
			}
		}
	}
	return found
}

// forgotten reports whether the store lost its memory between two times.
func forgotten(ops []Op, from, to int64) bool {
	for _, op := range ops {
		if op.Kind == Rewind && op.Begin < to && op.End > from {
			return true
		}
	}
	return false
}

// byHand reports whether an operator ended a term, or may have, before the next
// one began.
func byHand(list []*grant, term, next *grant) bool {
	return slices.ContainsFunc(list, func(g *grant) bool {
		if !g.verb.ByHand() {
			return false
		}
		if g.token == 0 { // outcome unknown
			return g.asked < next.told
		}
		return g.token > term.token && g.token <= next.token
	})
}
