package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/tenure"
)

func (a *app) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "history KEY",
		GroupID: groupLook,
		Short:   "Show who has held a key, newest first",
		Long: `Show the last 32 transfers of a key, newest first: who got it, why, how the term
ended, and, for acts by hand, who acted and why.

CAUSE is how a term began:
  first      nothing is remembered before it
  released   the owner before gave the key back
  expired    the owner before was not heard from in time
  handoff    an operator had reserved the key for this owner
  operator   an operator took the key by hand
  cancelled  an operator revoked the term before
  recovery   the owner asked for a token above one that the store did not know`,
		Example:           "  croft history reports/daily\n  croft history reports/daily --json",
		Args:              takes("KEY"),
		ValidArgsFunction: a.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			return a.history(c.Context(), args[0])
		},
	}
}

// transferView is one transfer in JSON: the fields of a record, and how the
// term ended.
type transferView struct {
	recordView
	Finished when       `json:"finished"`
	Ended    tenure.End `json:"ended"`
}

func (a *app) history(ctx context.Context, key string) error {
	rec, now, err := a.record(ctx, key)
	if err != nil {
		return err
	}
	if len(rec.History) == 0 && !a.json {
		fmt.Fprintf(a.stderr, "croft: nothing is remembered of %s\n", word(key))
		return nil
	}
	t := a.table("TOKEN", "WHEN", "OWNER", "CAUSE", "FOR", "ENDED", "BY HAND")
	t.whole = true // people read a history for the reasons
	for i := len(rec.History) - 1; i >= 0; i-- {
		if a.json {
			a.print(transferOf(rec, rec.History[i], now))
			continue
		}
		t.row(rowOfTerm(rec, rec.History[i], now)...)
	}
	if !a.json {
		t.flush()
	}
	return nil
}

// transferOf is a term in JSON. The whole record is known only of the newest.
func transferOf(rec tenure.Record, term tenure.Term, now time.Time) transferView {
	v := transferView{Finished: when(term.Finished), Ended: term.Ended}
	if term.Grant == rec.Grant {
		v.recordView = viewOf(rec, now)
		return v
	}
	v.recordView = recordView{
		Key: rec.Key, Token: term.Token, Owner: term.Owner, Instance: term.Instance, State: term.State,
		Cause: term.Cause, Actor: term.Actor, Note: term.Note, Acquired: when(term.Acquired),
	}
	return v
}

func rowOfTerm(rec tenure.Record, term tenure.Term, now time.Time) []cell {
	end, ended := term.Finished, cell{strings.ReplaceAll(string(term.Ended), "_", " "), uncoloured}
	switch term.Ended {
	case "":
		state, colour := stateOf(rec, now)
		end, ended = now, cell{state, colour}
		if state == "expired" {
			end = rec.Deadline
		}
	case tenure.EndExpired, tenure.EndTakenOver:
		ended.colour = red
	case tenure.EndFailed:
		ended.colour = yellow
	}
	owner := word(term.Owner)
	switch {
	case term.State == tenure.Reserved:
		owner += " (reserved)"
	case term.State == tenure.Free && term.Owner == "":
		owner = "(revoked)"
	}
	byHand := ""
	if term.Actor != "" {
		byHand = word(term.Actor) + ": " + line(term.Note)
	}
	return []cell{
		plainCell(strconv.FormatInt(int64(term.Token), 10)),
		plainCell(ago(now, term.Acquired)),
		plainCell(owner),
		plainCell(string(term.Cause)),
		plainCell(short(end.Sub(term.Acquired))),
		ended,
		plainCell(byHand),
	}
}
