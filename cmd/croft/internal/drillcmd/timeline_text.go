package drillcmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/internal/svg"
	"github.com/croft-dev/croft/tenure"
)

// moment is one entry of the list below the lanes, with a number.
type moment struct {
	lane *lane
	at   time.Time
	text string
}

// fact is something that an owner did, or that happened to it. kind is empty
// for facts from the store's history.
type fact struct {
	lane *lane
	at   time.Time
	kind drill.EventKind
	text string
}

// wordings are the facts in words. Renewals are not told, only drawn.
var wordings = map[drill.EventKind]string{
	drill.Asked:     "asks for the key, and waits",
	drill.Left:      "freezes in the middle of a write",
	drill.Returned:  "wakes up",
	drill.Wrote:     "writes",
	drill.Bounced:   "",
	drill.Refused:   "",
	drill.Overwrote: "",
}

// facts lists everything that is told, in the order of time.
func (t *timeline) facts() []fact {
	var all, ends []fact
	for _, l := range t.lanes {
		for _, term := range l.terms {
			how := "gets the lease"
			if term.Cause == tenure.Operator {
				how = "takes the lease over"
			}
			all = append(all, fact{l, term.Acquired, "", fmt.Sprintf("%s (token %s)", how, t.names[term.Token])})
			switch term.Ended {
			case "":
			case tenure.EndReleased:
				ends = append(ends, fact{l, term.Finished, "", "releases the lease"})
			default:
				why := strings.ReplaceAll(string(term.Ended), "_", " ")
				ends = append(ends, fact{l, term.Finished, "", fmt.Sprintf("loses the lease (%s)", why)})
			}
		}
		for _, e := range l.events {
			if text, told := wordings[e.Kind]; told {
				all = append(all, fact{l, e.At, e.Kind, text})
			}
		}
	}
	all = append(all, ends...) // at the same time, the end of a term is last
	slices.SortStableFunc(all, func(a, b fact) int { return a.at.Compare(b.at) })
	return all
}

// moments tells the story. Facts about one owner that are close to each other
// are one moment, so that the numbers in a lane do not touch.
func (t *timeline) moments() []moment {
	var all []moment
	var facts []fact
	tell := func() {
		if len(facts) > 0 {
			all = append(all, moment{facts[0].lane, facts[0].at, sentence(facts)})
		}
		facts = nil
	}
	for _, f := range t.facts() {
		if len(facts) > 0 && (f.lane != facts[0].lane || t.x(f.at)-t.x(facts[0].at) >= apart) {
			tell()
		}
		facts = append(facts, f)
	}
	tell()
	if left := len(all) - maxMoments; left > 0 {
		all = append(all[:maxMoments], moment{nil, all[maxMoments].at, fmt.Sprintf("and %d more moments", left)})
	}
	return all
}

// sentence tells facts about one owner.
func sentence(facts []fact) string {
	var did []string
	refused, through, woke := 0, 0, false
	for _, f := range facts {
		switch f.kind {
		case drill.Bounced, drill.Refused:
			refused++
		case drill.Overwrote:
			through++
		default:
			woke = woke || f.kind == drill.Returned
			if !slices.Contains(did, f.text) { // writes twice: once is enough
				did = append(did, f.text)
			}
		}
	}
	switch {
	case refused+through == 0:
	case woke: // the interrupted write is the first that it does
		did = append(did, "finishes its write")
	default:
		did = append(did, "tries again")
	}
	text := svg.Clip(facts[0].lane.owner, svg.Body, 120) + " " + did[0]
	for i, d := range did[1:] {
		if i == len(did)-2 {
			text += " and " + d
		} else {
			text += ", " + d
		}
	}
	switch {
	case refused+through == 0:
	case through > 0:
		text += fmt.Sprintf(": %s through, %s refused", counted(through, "stale write"), counted(refused, "request"))
	case refused == 1:
		text += ": refused"
	default:
		text += fmt.Sprintf(": refused, like %s after it", counted(refused-1, "more request"))
	}
	return text
}
