package history

import (
	"fmt"
	"slices"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// grant is what the history of a key tells of one grant.
type grant struct {
	id    fence.Grant
	token fence.Token // 0 if no answer ever showed it
	verb  tenure.Verb // that asked for it: an acquire, or an operator's
	owner string      // who asked for it, or whom it was reserved for
	// asked is when that was first sent, shown is the end of the first operation whose answer shows that it was granted, told that of the first that told its holder.
	asked, shown, told int64
	acquired           int64 // on the store's clock, in microseconds
	first              Op    // that sent it
	witness            Op    // that showed it
	// releases are when releases of it were sent; unsure is when a renewal first was whose outcome nobody knows, Never if none was.
	releases []int64
	unsure   int64
}

func newGrant(id fence.Grant) *grant {
	return &grant{id: id, asked: Never, shown: Never, told: Never, unsure: Never}
}

// grants collects what the answers tell, in the order in which they were asked for. Grants without a token are those that no answer shows: they may never have been.
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
	forgot := int64(Never) // when the store first did
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
		if g.token != 0 && g.token != token && op.End > forgot { // granted, forgotten, asked for again
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

// checkTokens holds that no token is given twice, and that what was granted after another grant was known has a higher one. It holds also where the store
// has forgotten what it knew: tokens are anchored in its clock.
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
	var highest *grant // of those shown before the next was asked for
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
