package engine

import (
	"slices"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// ActMade reconstructs the record that an operator's act made. It is for an act
// whose answer was lost, and whose term was over when the client asked again.
// The law answers "not owned" only to an act that was done. before is the
// record that was read before the act, and present the record that refuses it.
//
// known is false if the present record no longer remembers the act. If the act
// ended another term than that of before, missed is the token of that term:
// nobody remembers its guards.
func ActMade(act tenure.Request, before, present tenure.Record) (made tenure.Record, missed fence.Token, known bool) {
	i := slices.IndexFunc(present.History, func(t tenure.Term) bool { return t.Grant == act.Secret.Grant() })
	if i < 0 {
		return tenure.Record{}, 0, false
	}
	if i > 0 && present.History[i-1].Token != before.Token {
		missed = present.History[i-1].Token
	}
	term := present.History[i]
	made = tenure.Record{
		Key: act.Key, Token: term.Token, Grant: term.Grant, Owner: term.Owner, Instance: term.Instance,
		State: term.State, Cause: term.Cause, Ended: term.Ended, Actor: term.Actor, Note: term.Note,
		Acquired: term.Acquired, Renewed: term.Acquired, Deadline: term.Acquired.Add(act.TTL), TTL: act.TTL,
		Guards: slices.Clone(before.Guards),
	}
	// The guards of the next holder, or still those of the term that was ended.
	for _, target := range present.Guards {
		if !slices.Contains(made.Guards, target) {
			made.Guards = append(made.Guards, target)
		}
	}
	return made, missed, true
}
