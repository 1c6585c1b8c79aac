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

// Event is one admitted write or raise, or one look at a resource. Token is the
// token that it carried or saw. Begin and End come from one clock, before the
// call and after its answer. Refusals are no events: they change nothing and
// prove nothing.
type Event struct {
	Kind       Kind
	Token      fence.Token
	Begin, End int64
	// Who names the caller in reports.
	Who string
}

func (e Event) String() string {
	return fmt.Sprintf("%s of token %d by %s [%d,%d]", e.Kind, e.Token, e.Who, e.Begin, e.End)
}

// Law3 reports where a history breaks the third law: no admitted write carries
// a lower token than an earlier admitted write or raise. An event is earlier
// than another if it ended before the other began. If two calls overlap, either
// may be the first. All that readers see must have been admitted, so neither
// the content nor the mark may ever go back.
func Law3(history []Event) []string {
	ended := slices.Clone(history)
	slices.SortFunc(ended, func(a, b Event) int { return int(a.End - b.End) })
	begun := slices.Clone(history)
	slices.SortFunc(begun, func(a, b Event) int { return int(a.Begin - b.Begin) })

	var broken []string
	var mark, content Event // the highest tokens so far, of the mark and of the content
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
		if e.Kind == Read { // raises do not change the content
			floor = content
		}
		if e.Token < floor.Token {
			broken = append(broken, fmt.Sprintf("%v came after %v", e, floor))
		}
	}
	return broken
}
