package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) lsCommand() *cobra.Command {
	var only string
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		GroupID: groupLook,
		Short:   "List keys: who holds what, and for how much longer",
		Long: `List the keys that begin with PREFIX, or all. The store forgets a key that has
not been used for a day.

STATE is one of these. In JSON an expired or kept key is free.
  held      an owner has it
  free      anybody can take it
  reserved  only the named owner can take it
  hold      the work is done, and keeps the key for a while
  expired   its holder was not heard from in time; nobody has taken it since`,
		Example: `  croft ls
  croft ls reports/
  croft ls --state held --json | jq -r .owner`,
		Args:              takes("[PREFIX]"),
		ValidArgsFunction: a.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return a.ls(c.Context(), prefix, only)
		},
	}
	c.Flags().StringVar(&only, "state", "", "only keys in this state: "+strings.Join(states, ", "))
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// states are the words that stateOf returns.
var states = []string{"held", "free", "reserved", "hold", "expired"}

func (a *app) ls(ctx context.Context, prefix, only string) error {
	if only != "" && !slices.Contains(states, only) {
		return invalid("--state %q: it must be one of %s", only, strings.Join(states, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	now, err := st.Now(ctx)
	if err != nil {
		return store.Unknown(err)
	}
	t := a.table("KEY", "STATE", "OWNER", "TOKEN", "LEFT", "SINCE", "PROGRESS")
	for rec, err := range listed(ctx, st, prefix) {
		if err != nil {
			if len(t.rows) > 0 {
				t.flush() // show what could be read
			}
			return store.Unknown(err)
		}
		if state, _ := stateOf(rec, now); only != "" && state != only {
			continue
		}
		if a.json {
			a.print(viewOf(rec, now))
			if a.stdout.err != nil {
				return nil
			}
			continue
		}
		t.row(rowOf(rec, now)...)
	}
	if a.json {
		return nil
	}
	if len(t.rows) == 0 {
		fmt.Fprintf(a.stderr, "croft: no%s\n", cmp.Or(which(prefix, only), " keys"))
		return nil
	}
	t.flush()
	return nil
}

// which describes a choice of keys in a sentence. It is empty for all keys.
func which(prefix, only string) (text string) {
	if prefix == "" && only == "" {
		return ""
	}
	text = " keys"
	if prefix != "" {
		text += " that begin with " + word(prefix)
	}
	if only != "" {
		text += " in state " + only
	}
	return text
}

func rowOf(rec tenure.Record, now time.Time) []cell {
	state, colour := stateOf(rec, now)
	progress := ""
	if rec.Progress != "" {
		progress = fmt.Sprintf("%s (%s)", line(rec.Progress), ago(now, rec.ProgressAt))
	}
	return []cell{
		plainCell(word(rec.Key)),
		{state, colour},
		plainCell(word(rec.Owner)),
		plainCell(strconv.FormatInt(int64(rec.Token), 10)),
		plainCell(leftOf(rec, now)),
		plainCell(ago(now, rec.Acquired)),
		plainCell(progress),
	}
}

// leftOf is how much longer the state lasts if nothing happens.
func leftOf(rec tenure.Record, now time.Time) string {
	switch state, _ := stateOf(rec, now); state {
	case "held", "reserved":
		return short(rec.Deadline.Sub(now))
	case "hold":
		return short(rec.HoldUntil.Sub(now))
	case "expired":
		return ago(now, rec.Deadline)
	}
	return "-"
}
