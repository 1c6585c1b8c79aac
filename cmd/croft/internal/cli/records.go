package cli

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// drillKeys are the keys of croft drill. The store forgets them like all unused
// keys.
const drillKeys = "croft-drill/"

// Own reports whether Croft itself takes leases on a key: the proxy, the drill,
// and the stewards of a ledger. Nothing is written under these leases that a
// guard could refuse.
func Own(key string) bool {
	return strings.HasPrefix(key, drillKeys) || strings.HasPrefix(key, httpfence.DefaultLeasePrefix) ||
		key == "work/reconciler" || key == "work/dispatcher"
}

// Hidden reports whether a listing of a prefix leaves a key out: those of
// drills, unless the prefix asks for them.
func Hidden(key, prefix string) bool {
	return strings.HasPrefix(key, drillKeys) && !strings.HasPrefix(prefix, strings.TrimSuffix(drillKeys, "/"))
}

// ListRecords lists all records but those in which Croft keeps its own notes,
// and those that are Hidden.
func ListRecords(ctx context.Context, st store.Store, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		for rec, err := range st.List(ctx, prefix) {
			if err == nil && (refusals.Reserved(rec.Key) || Hidden(rec.Key, prefix)) {
				continue
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// NowFor is the store's time for printing a record.
func NowFor(rec tenure.Record, now time.Time) time.Time { return glance.NowFor(rec, now) }

// StateOf is a record's state in one word, and its colour.
func StateOf(rec tenure.Record, now time.Time) (string, Colour) {
	state := glance.StateOf(rec, now)
	return state, map[string]Colour{
		"held": Green, "expired": Red, "reserved": Yellow, "hold": Yellow, "period": Yellow, "free": Faint,
	}[state]
}

// DescribeRecord returns the lines of croft show: a name and a text each.
func DescribeRecord(p Palette, rec tenure.Record, now time.Time) [][2]string {
	if rec.IsZero() {
		return [][2]string{{"state", "free: nothing is remembered of this key"}}
	}
	now = NowFor(rec, now)
	var all [][2]string
	add := func(name, format string, args ...any) {
		all = append(all, [2]string{name, fmt.Sprintf(format, args...)})
	}
	state, colour := StateOf(rec, now)
	shown := p.Paint(colour, state)
	switch state {
	case "held", "reserved":
		add("state", "%s, %s left, until %s", shown, Short(rec.Deadline.Sub(now)), ClockTime(now, rec.Deadline))
	case "hold":
		add("state", "%s: done, and kept from everybody for %s, until %s", shown, Short(rec.HoldUntil.Sub(now)),
			ClockTime(now, rec.HoldUntil))
	case "period":
		if rec.Every == tenure.Once {
			add("state", "%s: done for good; a run with --once is refused", shown)
			break
		}
		due := rec.Due(rec.Every)
		add("state", "%s: done, and not due for %s, until %s; a run without --every can take it", shown,
			Short(due.Sub(now)), ClockTime(now, due))
	case "expired":
		add("state", "%s %s: its holder was not heard from in time; the next contender gets the key", shown,
			Ago(now, rec.Deadline))
	default:
		add("state", "%s", shown)
	}
	if rec.Owner != "" {
		name := "owner"
		if state != "held" && state != "reserved" {
			name = "last owner"
		}
		add(name, "%s", Word(rec.Owner))
	}
	if rec.Instance != "" {
		add("instance", "%s", Word(rec.Instance))
	}
	add("token", "%d", rec.Token)
	add("since", "%s, at %s", Ago(now, rec.Acquired), ClockTime(now, rec.Acquired))
	if why, known := glance.Causes[rec.Cause]; known {
		add("cause", "%s: %s", rec.Cause, why)
	}
	if rec.State == tenure.Held {
		add("renewed", "%s, for %s", Ago(now, rec.Renewed), rec.TTL)
	}
	if rec.Ended != "" {
		add("ended", "%s %s", strings.ReplaceAll(string(rec.Ended), "_", " "), Ago(now, rec.Deadline))
	}
	if rec.Progress != "" {
		add("progress", "%s, %s", Line(rec.Progress), Ago(now, rec.ProgressAt))
	}
	if rec.Checkpoint != "" {
		add("checkpoint", "%s", Excerpt([]byte(rec.Checkpoint)))
	}
	if rec.Actor != "" {
		add("by hand", "%s: %s", Word(rec.Actor), Line(rec.Note))
	}
	if rec.Every > 0 {
		add("every", "%s", Period(rec.Every))
	}
	if !rec.Succeeded.IsZero() {
		add("success", "began %s, at %s", Ago(now, rec.Succeeded), ClockTime(now, rec.Succeeded))
	}
	if due := rec.Due(rec.Every); rec.Every != tenure.Once && now.Before(due) {
		add("due", "%s, at %s", Ago(now, due), ClockTime(now, due))
	}
	for i, target := range rec.Guards {
		name := ""
		if i == 0 {
			name = "guards"
		}
		add(name, "%s", Word(store.Redact(target)))
	}
	add("terms", "%d", rec.Terms)
	return all
}

// TransferView is one transfer in JSON: the fields of a record, and how the
// term ended.
type TransferView struct {
	RecordView
	Finished When       `json:"finished"`
	Ended    tenure.End `json:"ended"`
}

// TransferOf is a term in JSON. The whole record is known only of the newest.
func TransferOf(rec tenure.Record, term tenure.Term, now time.Time) TransferView {
	v := TransferView{Finished: When(term.Finished), Ended: term.Ended}
	if term.Grant == rec.Grant {
		v.RecordView = ViewOf(rec, now)
		return v
	}
	v.RecordView = RecordView{
		Key: rec.Key, Token: term.Token, Owner: term.Owner, Instance: term.Instance, State: string(term.State),
		Cause: term.Cause, Actor: term.Actor, Note: term.Note, Acquired: When(term.Acquired),
	}
	return v
}

// RowOfTerm is a term as a row of croft history.
func RowOfTerm(rec tenure.Record, term tenure.Term, now time.Time) []Cell {
	now = NowFor(rec, now)
	end, ended := term.Finished, Cell{strings.ReplaceAll(string(term.Ended), "_", " "), Uncoloured}
	switch term.Ended {
	case "":
		state, colour := StateOf(rec, now)
		end, ended = now, Cell{state, colour}
		if state == "expired" {
			end = rec.Deadline
		}
	case tenure.EndExpired, tenure.EndTakenOver:
		ended.Colour = Red
	case tenure.EndFailed:
		ended.Colour = Yellow
	}
	owner := Word(term.Owner)
	switch {
	case term.State == tenure.Reserved:
		owner += " (reserved)"
	case term.State == tenure.Free && term.Owner == "":
		owner = "(revoked)"
	}
	byHand := ""
	if term.Actor != "" {
		byHand = Word(term.Actor) + ": " + Line(term.Note)
	}
	return []Cell{
		PlainCell(strconv.FormatInt(int64(term.Token), 10)),
		PlainCell(Ago(now, term.Acquired)),
		PlainCell(owner),
		PlainCell(string(term.Cause)),
		PlainCell(Short(end.Sub(term.Acquired))),
		ended,
		PlainCell(byHand),
	}
}
