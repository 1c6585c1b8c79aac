package history

import (
	"fmt"
	"slices"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// grant collects everything that a key's history says about one grant.
type grant struct {
	id    fence.Grant
	token fence.Token // 0 if no answer ever showed it
	verb  tenure.Verb // of the request for it: Acquire, or an operator's verb
	owner string      // of that request, or the owner it was reserved for
	// asked is the time at which the request for it was first sent. shown is
	// the end of the first operation whose answer shows the grant. told is the
	// end of the first operation that told its holder of it.
	asked, shown, told int64
	acquired           int64 // on the store's clock, in microseconds
	first              Op    // the operation that first asked for it
	witness            Op    // the operation that first showed it
	// releases are the times at which releases of it were sent.
	releases []int64
	// unsure is the time of its first renewal with unknown outcome, or Never.
	unsure int64
}

func newGrant(id fence.Grant) *grant {
	return &grant{id: id, asked: Never, shown: Never, told: Never, unsure: Never}
}

// grants collects all grants of a key, in the order in which they were asked
// for, and the violations that it meets on the way. A grant has no token if no
// answer shows it: it may never have happened.
func grants(ops []Op) ([]*grant, []Violation) {
	var found []Violation
	by := map[fence.Grant]*grant{}
	var list []*grant
	for _, op := range ops {
		if op.Kind != Lease {
			continue
		}
		_, id := op.Asked()
		g := by[id]
		if g == nil {
			g = newGrant(id)
			by[id] = g
			list = append(list, g)
		}
		switch {
		case (op.Verb == tenure.Acquire || op.Verb.ByHand()) && op.Begin < g.asked:
			g.asked, g.first, g.verb, g.owner = op.Begin, op, op.Verb, op.Call.Owner
		case op.Verb == tenure.Release:
			g.releases = append(g.releases, op.Begin)
		case op.Verb == tenure.Renew && op.Open():
			g.unsure = min(g.unsure, op.Begin)
		}
		if (op.Verb == tenure.Acquire || op.Verb == tenure.Takeover) && op.Outcome == OK {
			g.told = min(g.told, op.End)
		}
	}
	forgot := int64(Never) // when the store first lost its memory
	for _, op := range ops {
		if op.Kind == Rewind {
			forgot = min(forgot, op.Begin)
		}
		token, id := op.Shown()
		if op.Kind != Lease || token == 0 {
			continue
		}
		g := by[id]
		if g == nil || g.asked == Never {
			found = append(found, Violation{
				Law: Tokens, Key: op.Key,
				Text: fmt.Sprintf("token %d went to grant %s, which nobody asked for", token, short(id)),
				Ops:  []Op{op},
			})
			continue
		}
		// The store forgot the grant, and granted the same secret again.
		if g.token != 0 && g.token != token && op.End > forgot {
			life := *g
			life.token, life.shown = 0, Never
			g = &life
			by[id] = g
			list = append(list, g)
		}
		if g.token != 0 && g.token != token {
			found = append(found, Violation{
				Law: Tokens, Key: op.Key,
				Text: fmt.Sprintf(
					"grant %s has two tokens, %d and %d: a secret is granted once", short(id),
					g.token, token,
				),
				Ops: []Op{g.witness, op},
			})
			continue
		}
		if op.End < g.shown {
			g.shown, g.witness = op.End, op
		}
		g.token, g.acquired = token, op.Acquired
	}
	list = slices.DeleteFunc(list, func(g *grant) bool { return g.asked == Never })
	slices.SortStableFunc(list, func(a, b *grant) int { return int(min(1, max(-1, a.asked-b.asked))) })
	return list, found
}

// checkTokens checks that no two grants have the same token. If a grant was
// shown before another was asked for, the later one must have the higher token.
// This must hold even after the store lost its memory, because tokens are
// anchored in its clock.
func checkTokens(key string, ops []Op) []Violation {
	list, found := grants(ops)
	seen := map[fence.Token]*grant{}
	var known []*grant
	for _, g := range list {
		if g.token == 0 {
			continue
		}
		if other := seen[g.token]; other != nil {
			found = append(found, Violation{
				Law: Tokens, Key: key,
				Text: fmt.Sprintf("token %d was given to two grants", g.token),
				Ops:  []Op{other.witness, g.witness},
			})
		}
		seen[g.token] = g
		known = append(known, g)
	}
	byShown := slices.Clone(known)
	slices.SortStableFunc(byShown, func(a, b *grant) int { return int(min(1, max(-1, a.shown-b.shown))) })
	var highest *grant // of the grants shown before g was asked for
	i := 0
	for _, g := range known {
		for ; i < len(byShown) && byShown[i].shown < g.asked; i++ {
			if highest == nil || byShown[i].token > highest.token {
				highest = byShown[i]
			}
		}
		if highest != nil && highest.token > g.token {
			found = append(found, Violation{
				Law: Tokens, Key: key,
				Text: fmt.Sprintf("token %d was given after token %d was", g.token, highest.token),
				Ops:  []Op{highest.witness, g.first, g.witness},
			})
		}
	}
	return found
}
