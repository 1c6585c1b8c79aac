package history

import (
	"fmt"
	"slices"

	"github.com/croft-dev/croft/fence"
)

// Tally counts the updates of one key. Every update names the one it was made
// from. The updates that count are the chain from the newest back to the first.
type Tally struct {
	Confirmed int // updates that the resource confirmed to their writers
	Chain     int // updates in the chain
	Lost      []Op
	// Broken are all other violations. An update is in the chain though it was
	// refused, or happened twice, or its owner is older than the one before.
	Broken []Violation
}

// update is one update, with all copies of its write.
type update struct {
	id     string
	copies []Op
}

func (u update) confirmed() bool {
	return slices.ContainsFunc(u.copies, func(op Op) bool { return op.Outcome == OK || op.Outcome == Repeated })
}

// since returns when the writer was first told that its update was made.
func (u update) since() int64 {
	at := int64(Never)
	for _, op := range u.copies {
		if op.Outcome == OK || op.Outcome == Repeated {
			at = min(at, op.End)
		}
	}
	return at
}

// refused reports whether all copies of the write were refused.
func (u update) refused() bool {
	return !slices.ContainsFunc(u.copies, func(op Op) bool {
		return op.Outcome == OK || op.Outcome == Repeated || op.Open()
	})
}

// Count follows the chain of a key's updates, back from the update that the
// last read returned.
func Count(key string, ops []Op) Tally {
	var t Tally
	updates := map[string]*update{}
	var order []*update
	head, headAt := "", int64(-1)
	for _, op := range ops {
		if op.Key != key {
			continue
		}
		switch {
		case op.Kind == Write:
			u := updates[op.Call.Update]
			if u == nil {
				u = &update{id: op.Call.Update}
				updates[u.id] = u
				order = append(order, u)
			}
			u.copies = append(u.copies, op)
		case op.Kind == Read && op.Outcome == OK && op.Begin > headAt:
			head, headAt = op.Result.Update, op.Begin
		}
	}
	chain, broken := follow(key, head, updates)
	t.Chain, t.Broken = len(chain), broken
	counts := map[string]bool{}
	for _, u := range chain {
		counts[u.id] = true
	}
	for _, u := range order {
		switch {
		case u.confirmed():
			t.Confirmed++
			if !counts[u.id] && u.since() < headAt {
				t.Lost = append(t.Lost, u.copies[0])
			}
		case u.refused() && counts[u.id]:
			t.Broken = append(t.Broken, Violation{
				Law: NothingWas, Key: key,
				Text: "update " + u.id + " counts, though every copy of it was refused",
				Ops:  u.copies,
			})
		}
	}
	t.Broken = append(t.Broken, checkChain(key, chain)...)
	t.Broken = append(t.Broken, checkApplied(key, ops, chain)...)
	return t
}

// follow walks from the newest update back to the first. It returns the chain
// with the first update first.
func follow(key, head string, updates map[string]*update) ([]*update, []Violation) {
	var chain []*update
	seen := map[string]bool{}
	for id := head; id != ""; {
		u := updates[id]
		if u == nil {
			return chain, []Violation{{
				Law: Kept, Key: key,
				Text: fmt.Sprintf("the resource holds update %q, which nobody wrote", id),
			}}
		}
		if seen[id] {
			return chain, []Violation{{
				Law: Once, Key: key,
				Text: "update " + id + " was made from one that was made from it", Ops: u.copies,
			}}
		}
		seen[id] = true
		chain = append(chain, u)
		id = u.copies[0].Prior
	}
	slices.Reverse(chain)
	return chain, nil
}

// checkChain compares each update in the chain with the one before. Either the
// owner is newer, or it is the same and the sequence number is higher.
func checkChain(key string, chain []*update) []Violation {
	var found []Violation
	for i := 1; i < len(chain); i++ {
		before, u := chain[i-1].copies[0], chain[i].copies[0]
		if newer(before.Call, u.Call) {
			continue
		}
		found = append(found, Violation{
			Law: Order, Key: key,
			Text: fmt.Sprintf("an update of token %d follows one of token %d", u.Call.Token, before.Call.Token),
			Ops:  []Op{before, u},
		})
	}
	return found
}

func newer(a, b Call) bool {
	before := fence.Mark{Key: a.Key, Token: a.Token, Grant: a.Grant, Seq: a.Seq}
	_, err := before.Admit(fence.Stamp{Key: b.Key, Token: b.Token, Grant: b.Grant, Seq: b.Seq})
	return err == nil
}

// checkApplied compares the chain with the list of applied updates, if the
// resource keeps one. No update may be in the list twice, and all of the chain
// must be in it. The order is not compared.
func checkApplied(key string, ops []Op, chain []*update) []Violation {
	var found []Violation
	for _, op := range ops {
		if op.Kind != Applied || op.Key != key || op.Outcome != OK {
			continue
		}
		times := map[string]int{}
		for _, id := range op.Updates {
			if times[id]++; times[id] == 2 {
				found = append(found, Violation{
					Law: Once, Key: key, Text: "update " + id + " was applied twice", Ops: []Op{op},
				})
			}
		}
		if len(found) > 0 || len(chain) == 0 {
			continue
		}
		for _, u := range chain {
			if times[u.id] == 0 && u.copies[0].Begin < op.Begin {
				found = append(found, Violation{
					Law: Kept, Key: key,
					Text: "update " + u.id + " counts, and the resource says it was never applied",
					Ops:  u.copies,
				})
				break
			}
		}
	}
	return found
}

func checkUpdates(key string, ops []Op) []Violation {
	t := Count(key, ops)
	found := t.Broken
	for _, op := range t.Lost {
		v := Violation{
			Law: Kept, Key: key,
			Text: "update " + op.Call.Update + " was confirmed, and what counts now was made without it",
			Ops:  []Op{op},
		}
		for _, other := range ops {
			if other.Kind == Write && other.Prior == op.Prior && other.Call.Update != op.Call.Update &&
				other.Outcome == OK {
				v.Ops = append(v.Ops, other) // made from the same update
			}
		}
		found = append(found, v)
	}
	return found
}

// Forks counts confirmed updates that were made from the same update as
// another. All but one of each such group are lost, whatever is read later.
// Forks works while clients still write, because it needs no last read, but it
// does not find every loss.
func Forks(key string, ops []Op) int {
	confirmed := map[string]string{} // from update to prior
	for _, op := range ops {
		if op.Kind == Write && op.Key == key && (op.Outcome == OK || op.Outcome == Repeated) {
			confirmed[op.Call.Update] = op.Prior
		}
	}
	from := map[string]int{}
	forks := 0
	for _, prior := range confirmed {
		if from[prior]++; from[prior] > 1 {
			forks++
		}
	}
	return forks
}
