package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) watchCommand() *cobra.Command {
	interval, onlyLines := time.Second, false
	c := &cobra.Command{
		Use:     "watch [PREFIX]",
		GroupID: cli.GroupLook,
		Short:   "Watch ownership change as it happens",
		Long: `Show the keys that begin with PREFIX, or all, until interrupted. A terminal
shows a page that croft keeps up to date: above the owners, the time they have
left and the age of their progress, below the latest changes.

Elsewhere, and with --lines, croft prints a line for every change: time, key,
what happened, owner, token, and how the term began. A refusal is a change, too:
guards refuse the writes of an owner that lost the key, and stores its renewals
and releases. Croft sees those refusals of which the refused process left a note
in the store. Renewals are not changes. Croft looks at the store every
--interval, and misses what began and ended between two looks. "croft history"
has it.`,
		Example: `  croft watch
  croft watch reports/ --interval 5s
  croft watch --lines
  croft watch --json | jq 'select(.change == "refused")'`,
		Args:              cli.Takes("[PREFIX]"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return a.watch(c.Context(), prefix, interval, onlyLines)
		},
	}
	c.Flags().Var(&cli.Duration{
		Value: &interval, Least: 10 * time.Millisecond, Most: time.Hour,
		Examples: "1s or 500ms",
	},
		"interval", "how often to look")
	c.Flags().BoolVar(&onlyLines, "lines", false, "print a line for every change, on a terminal, too")
	return c
}

// changeView is a change in JSON: the record, what happened, and when.
type changeView struct {
	Time   cli.When `json:"time"`
	Change string   `json:"change"`
	cli.RecordView
}

// change is one difference between two looks at the store.
type change struct {
	at      time.Time
	what    string
	rec     tenure.Record     // for a refusal only key, owner and token
	refused *refusals.Refusal // nil unless it is a refusal
}

// snapshot is what one look at the store has found.
type snapshot struct {
	at       time.Time // by the store's clock
	all      map[string]tenure.Record
	refusals map[refusals.Refusal]bool
	damage   damage // of the records that are missing
}

func (a *app) watch(ctx context.Context, prefix string, interval time.Duration, onlyLines bool) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	st, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := a.Now(ctx, st); err != nil {
		return err
	}
	seen, err := a.look(ctx, st, prefix)
	if err != nil {
		return err
	}
	var show watcher = (*watchLines)(a)
	if page := a.newWatchPage(); page != nil && !onlyLines {
		show = page
	}
	show.begin(cmp.Or(which(prefix, ""), " all keys"), seen)
	defer show.end()
	damaged := ""
	sayDamage := func(now snapshot) { // once, and not at every look
		if text := now.damage.text(a); text != damaged {
			if damaged = text; text != "" {
				show.say(text)
			}
		}
	}
	sayDamage(seen)

	tick := time.NewTicker(interval)
	defer tick.Stop()
	reachable := true
	for {
		select {
		case <-ctx.Done():
			return nil // an interrupt is the normal end
		case <-tick.C:
		}
		now, err := a.look(ctx, st, prefix)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if reachable {
				show.say(fmt.Sprintf("%s; still trying", cli.Lines(a.Redact(err.Error()))))
			}
			reachable = false
			continue
		}
		if !reachable {
			show.say("the store is back")
		}
		reachable = true
		show.update(now, changes(seen, now))
		sayDamage(now)
		if a.Stdout.Err != nil {
			return nil
		}
		seen = now
	}
}

// watcher shows changes.
type watcher interface {
	begin(what string, first snapshot)
	update(now snapshot, changed []change)
	say(what string)
	end()
}

// watchLines prints a line for every change.
type watchLines app

func (w *watchLines) begin(what string, first snapshot) {
	w.say(fmt.Sprintf("watching%s, %d at the moment; end with ctrl-C", what, len(first.all)))
}

func (w *watchLines) update(now snapshot, changed []change) {
	a := (*app)(w)
	for _, c := range changed {
		switch {
		case a.JSON && c.refused != nil:
			a.Print(refusalViewOf(*c.refused))
		case a.JSON:
			a.Print(changeView{Time: cli.When(c.at), Change: c.what, RecordView: cli.ViewOf(c.rec, now.at)})
		default:
			fmt.Fprintln(a.Stdout, changeLine(c, a.Palette()))
		}
	}
}

func (w *watchLines) say(what string) { fmt.Fprintf(w.Stderr, "croft: %s\n", what) }
func (w *watchLines) end()            {}

// look reads all records and refusals.
func (a *app) look(ctx context.Context, st store.Store, prefix string) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	now, err := a.QuietNow(ctx, st) // a line would spoil the page
	if err != nil {
		return snapshot{}, err
	}
	s := snapshot{at: now, all: map[string]tenure.Record{}, refusals: map[refusals.Refusal]bool{}}
	for rec, err := range cli.ListRecords(ctx, st, prefix) {
		if err == nil {
			s.all[rec.Key] = rec
		} else if err := s.damage.rest(err); err != nil {
			return s, err
		}
	}
	refused, err := refusals.Read(ctx, st, prefix)
	if err := s.damage.rest(err); err != nil {
		return s, err
	}
	for _, r := range refused {
		if cli.Hidden(r.Key, prefix) {
			continue
		}
		r.At, r.Since = tenure.Time(r.At), tenure.Time(r.Since) // equal to the same refusal of an earlier look
		s.refusals[r] = true
	}
	return s, nil
}

// changes lists what happened between two looks, in order of time.
func changes(before, after snapshot) []change {
	var all []change
	add := func(at time.Time, what string, rec tenure.Record) {
		all = append(all, change{at: at, what: what, rec: rec})
	}
	for key, rec := range after.all {
		old := before.all[key]
		was, is := old.StateAt(before.at), rec.StateAt(after.at)
		switch {
		case rec.Token != old.Token:
			what := "granted"
			switch {
			case rec.Cause == tenure.Cancelled && rec.Owner == "":
				what = "revoked"
			case rec.Cause == tenure.Operator && is == tenure.Reserved:
				what = "reserved"
			case rec.Cause == tenure.Operator:
				what = "taken_over"
			}
			add(rec.Acquired, what, rec)
			switch { // the term may have ended already
			case rec.Ended != "":
				add(rec.Deadline, string(rec.Ended), rec)
			case is == tenure.Free && what != "revoked":
				add(rec.Deadline, "expired", rec)
			}
		case rec.Ended != old.Ended:
			add(rec.Deadline, string(rec.Ended), rec)
		case is == tenure.Free && was != tenure.Free:
			add(rec.Deadline, "expired", rec)
		case is == tenure.Held && was == tenure.Free:
			add(rec.Renewed, "resumed", rec)
		}
		if rec.Progress != "" && !rec.ProgressAt.Equal(old.ProgressAt) {
			add(rec.ProgressAt, "progress", rec)
		}
	}
	for key, old := range before.all {
		// A record that is missing may be damaged.
		if _, still := after.all[key]; !still && len(after.damage.errs) == 0 {
			add(after.at, "forgotten", old)
		}
	}
	for r := range after.refusals {
		if !before.refusals[r] {
			all = append(all, change{
				at: r.At, what: string(r.Kind()),
				rec: tenure.Record{Key: r.Key, Owner: r.Owner, Token: r.Token}, refused: &r,
			})
		}
	}
	slices.SortStableFunc(all, func(x, y change) int {
		return cmp.Or(x.at.Compare(y.at), strings.Compare(x.rec.Key, y.rec.Key))
	})
	return all
}

// changeLine is a change as one line.
func changeLine(c change, p cli.Palette) string {
	colour := map[string]cli.Colour{
		"granted": cli.Green, "resumed": cli.Green, "expired": cli.Red, "taken_over": cli.Red, "revoked": cli.Red,
		"refused": cli.Red, "observed": cli.Red, "unsure": cli.Yellow, "failed": cli.Yellow, "reserved": cli.Yellow,
	}[c.what]
	owner, about := cli.Word(c.rec.Owner), string(c.rec.Cause)
	if c.refused != nil {
		owner, about = whose(c.rec.Owner), refusalText(*c.refused)
	}
	text := fmt.Sprintf("%s  %s  %s  %s  %d  %s", p.Paint(cli.Faint, c.at.Local().Format("15:04:05.000")),
		padded(cli.Word(c.rec.Key), 24),
		p.Paint(colour, padded(strings.ReplaceAll(c.what, "_", " "), 10)), padded(owner, 20), c.rec.Token, about)
	switch {
	case c.what == "progress":
		text += "  " + cli.Line(c.rec.Progress)
	case c.rec.Actor != "":
		text += "  " + cli.Word(c.rec.Actor) + ": " + cli.Line(c.rec.Note)
	}
	return text
}

// padded fills text with spaces up to a width.
func padded(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-cli.Width(text)))
}
