package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/croft-dev/croft/fence"
)

// checkOrder checks guards, as far as the times say which operation came first.
// If a token was admitted or raised before an operation began, no lower token
// may be admitted to it. A refusal as stale must name a newer token that
// somebody had presented.
func checkOrder(key string, ops []Op) []Violation {
	var asked, admitted []Op
	for _, op := range ops {
		if op.Kind == Raise || op.Kind == Write {
			asked = append(asked, op)
			if op.Outcome == OK {
				admitted = append(admitted, op)
			}
		}
	}
	var found []Violation
	byEnd := slices.Clone(admitted)
	slices.SortStableFunc(byEnd, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	slices.SortStableFunc(admitted, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
	var highest Op
	i := 0
	for _, op := range admitted {
		for ; i < len(byEnd) && byEnd[i].End < op.Begin; i++ {
			if byEnd[i].Call.Token > highest.Call.Token {
				highest = byEnd[i]
			}
		}
		if op.Call.Token < highest.Call.Token {
			found = append(found, Violation{
				Law: Order, Key: key,
				Text: fmt.Sprintf("token %d was admitted after token %d", op.Call.Token, highest.Call.Token),
				Ops:  []Op{highest, op},
			})
		}
	}
	return append(found, falseRefusals(key, asked)...)
}

func falseRefusals(key string, asked []Op) []Violation {
	presented := map[fence.Token]int64{} // when first
	for _, op := range asked {
		if at, ok := presented[op.Call.Token]; !ok || op.Begin < at {
			presented[op.Call.Token] = op.Begin
		}
	}
	var found []Violation
	for _, op := range asked {
		if op.Outcome != Stale {
			continue
		}
		at, ok := presented[op.Result.Token]
		if op.Result.Token <= op.Call.Token || !ok || at > op.End {
			found = append(found, Violation{
				Law: NoFalse, Key: key,
				Text: fmt.Sprintf(
					"token %d was refused for token %d, which nobody had presented by then or which is no newer",
					op.Call.Token, op.Result.Token,
				),
				Ops: []Op{op},
			})
		}
	}
	return found
}
