package guardtest

import (
	"fmt"
	"slices"

	"github.com/croft-dev/croft/fence"
)

// Kind says what an Event was.
type Kind string

// The kinds of event.
const (
	Write Kind = "write" // an admitted write
	Raise Kind = "raise" // an admitted raise
	Read  Kind = "read"  // a look at the content
	Look  Kind = "look"  // a look at the mark
)

// Event is one admitted write or raise, or one look at a resource, with the token that it carried or saw. Begin and End are taken from one clock
// before the call and after its answer. Refusals are no events: they change nothing and prove nothing.
type Event struct {
	Kind       Kind
	Token      fence.Token
	Begin, End int64
	// Who is for the report.
	Who string
}

func (e Event) String() string {
	return fmt.Sprintf("%s of token %d by %s [%d,%d]", e.Kind, e.Token, e.Who, e.Begin, e.End)
}

// Law3 reports what in a history breaks the third law: no admitted write carries a token below one admitted, or raised, before it. One event is
// before another if it had ended when the other began; of calls that overlap either may be the first. Since what is seen must have been
// admitted, neither the content nor the mark is ever seen to go back.
func Law3(history []Event) []string {
	ended := slices.Clone(history)
	slices.SortFunc(ended, func(a, b Event) int { return int(a.End - b.End) })
	begun := slices.Clone(history)
	slices.SortFunc(begun, func(a, b Event) int { return int(a.Begin - b.Begin) })

	var broken []string
	var mark, content Event // the highest token so far that the mark, and the content, must have
	for _, e := range begun {
		for len(ended) > 0 && ended[0].End < e.Begin {
			past := ended[0]
			ended = ended[1:]
			if past.Token > mark.Token {
				mark = past
			}
			if (past.Kind == Write || past.Kind == Read) && past.Token > content.Token {
				content = past
			}
		}
		floor := mark
		if e.Kind == Read { // a raise moves the mark alone
			floor = content
		}
		if e.Token < floor.Token {
			broken = append(broken, fmt.Sprintf("%v came after %v", e, floor))
		}
	}
	return broken
}
