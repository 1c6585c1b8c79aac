package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// listed lists all records but those in which Croft keeps its own notes.
func listed(ctx context.Context, st store.Store, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		for rec, err := range st.List(ctx, prefix) {
			if err == nil && refusals.Reserved(rec.Key) {
				continue
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// stateOf is a record's state in one word, and its colour.
func stateOf(rec tenure.Record, now time.Time) (string, colour) {
	switch {
	case rec.Alive(now):
		return "held", green
	case rec.State == tenure.Held:
		return "expired", red
	case rec.StateAt(now) == tenure.Reserved:
		return "reserved", yellow
	case rec.State == tenure.Free && rec.Ended == tenure.EndReleased && now.Before(rec.HoldUntil):
		return "hold", yellow
	}
	return "free", faint
}

// causes explains how a term began.
var causes = map[tenure.Cause]string{
	tenure.First:     "nothing is remembered before it",
	tenure.Released:  "the holder before it gave the key back",
	tenure.Expired:   "the holder before it was not heard from in time",
	tenure.Handoff:   "an operator had reserved the key for this owner",
	tenure.Operator:  "an operator took the key from its holder",
	tenure.Cancelled: "an operator revoked the term before it",
	tenure.Recovery:  "its holder asked for a token above one that the store did not know",
}

// describe returns the lines of croft show: a name and a text each.
func describe(p palette, rec tenure.Record, now time.Time) [][2]string {
	if rec.IsZero() {
		return [][2]string{{"state", "free: nothing is remembered of this key"}}
	}
	var all [][2]string
	add := func(name, format string, args ...any) {
		all = append(all, [2]string{name, fmt.Sprintf(format, args...)})
	}
	state, colour := stateOf(rec, now)
	shown := p.paint(colour, state)
	switch state {
	case "held", "reserved":
		add("state", "%s, %s left, until %s", shown, short(rec.Deadline.Sub(now)), clockTime(now, rec.Deadline))
	case "hold":
		add("state", "%s: done, and kept from everybody for %s, until %s", shown, short(rec.HoldUntil.Sub(now)),
			clockTime(now, rec.HoldUntil))
	case "expired":
		add("state", "%s %s: its holder was not heard from in time; the next contender gets the key", shown,
			ago(now, rec.Deadline))
	default:
		add("state", "%s", shown)
	}
	if rec.Owner != "" {
		name := "owner"
		if state != "held" && state != "reserved" {
			name = "last owner"
		}
		add(name, "%s", word(rec.Owner))
	}
	if rec.Instance != "" {
		add("instance", "%s", word(rec.Instance))
	}
	add("token", "%d", rec.Token)
	add("since", "%s, at %s", ago(now, rec.Acquired), clockTime(now, rec.Acquired))
	if why, known := causes[rec.Cause]; known {
		add("cause", "%s: %s", rec.Cause, why)
	}
	if rec.State == tenure.Held {
		add("renewed", "%s, for %s", ago(now, rec.Renewed), rec.TTL)
	}
	if rec.Ended != "" {
		add("ended", "%s %s", strings.ReplaceAll(string(rec.Ended), "_", " "), ago(now, rec.Deadline))
	}
	if rec.Progress != "" {
		add("progress", "%s, %s", line(rec.Progress), ago(now, rec.ProgressAt))
	}
	if rec.Actor != "" {
		add("by hand", "%s: %s", word(rec.Actor), line(rec.Note))
	}
	if rec.Every > 0 {
		add("every", "%s", rec.Every)
	}
	if !rec.Succeeded.IsZero() {
		add("success", "began %s, at %s", ago(now, rec.Succeeded), clockTime(now, rec.Succeeded))
	}
	for i, target := range rec.Guards {
		name := ""
		if i == 0 {
			name = "guards"
		}
		add(name, "%s", word(store.Redact(target)))
	}
	add("terms", "%d", rec.Terms)
	return all
}

// transferView is one transfer in JSON: the fields of a record, and how the
// term ended.
type transferView struct {
	recordView
	Finished when       `json:"finished"`
	Ended    tenure.End `json:"ended"`
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
