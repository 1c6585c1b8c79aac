package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show KEY",
		GroupID:           groupLook,
		Short:             "Show everything the store knows of one key",
		Example:           "  croft show reports/daily\n  croft show reports/daily --json | jq .deadline",
		Args:              takes("KEY"),
		ValidArgsFunction: a.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			return a.show(c.Context(), args[0])
		},
	}
}

func (a *app) show(ctx context.Context, key string) error {
	rec, now, err := a.record(ctx, key)
	if err != nil {
		return err
	}
	if a.json {
		if rec.IsZero() {
			rec.Key, rec.State = key, tenure.Free
		}
		a.print(viewOf(rec, now))
		return nil
	}
	p := a.palette()
	fmt.Fprintln(a.stdout, p.paint(bold, word(key)))
	for _, f := range describe(p, rec, now) {
		fmt.Fprintf(a.stdout, "  %s%s\n", p.paint(faint, fmt.Sprintf("%-12s", f[0])), f[1])
	}
	return nil
}

// record reads one key, with its history, and the store's time.
func (a *app) record(ctx context.Context, key string) (rec tenure.Record, now time.Time, err error) {
	if err := fence.CheckKey(key); err != nil {
		return rec, now, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.timeout)
	defer cancel()
	st, err := a.open(ctx)
	if err != nil {
		return rec, now, err
	}
	defer st.Close()
	if rec, err = st.Get(ctx, key); err != nil {
		return rec, now, store.Unknown(err)
	}
	if now, err = st.Now(ctx); err != nil {
		return rec, now, store.Unknown(err)
	}
	return rec, now, nil
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
