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

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) lsCommand() *cobra.Command {
	var only string
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		GroupID: cli.GroupLook,
		Short:   "List keys: who holds what, and for how much longer",
		Long: `List the keys that begin with PREFIX, or all. The store forgets a key that has
not been used for a day.

STATE is one of these, also in JSON:
  held      an owner has it
  free      anybody can take it
  reserved  only the named owner can take it
  hold      the work is done, and keeps the key for a while
  period    the work of this period is done, or done for good (--once); without
            --every or --once anybody can take it
  expired   its holder was not heard from in time; nobody has taken it since`,
		Example: `  croft ls
  croft ls reports/
  croft ls --state held --json | jq -r .owner`,
		Args:              cli.Takes("[PREFIX]"),
		ValidArgsFunction: a.CompleteKey,
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

// states are the words that StateOf returns.
var states = []string{"held", "free", "reserved", "hold", "period", "expired"}

func (a *app) ls(ctx context.Context, prefix, only string) error {
	if only != "" && !slices.Contains(states, only) {
		return cli.Invalid("--state %q: it must be one of %s", only, strings.Join(states, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	st, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	now, err := a.Now(ctx, st)
	if err != nil {
		return err
	}
	t := a.Table("KEY", "STATE", "OWNER", "TOKEN", "LEFT", "SINCE", "PROGRESS")
	for rec, err := range cli.ListRecords(ctx, st, prefix) {
		if err != nil {
			if len(t.Rows) > 0 {
				t.Flush() // show what could be read
			}
			return store.Unknown(err)
		}
		if state, _ := cli.StateOf(rec, now); only != "" && state != only {
			continue
		}
		if a.JSON {
			a.Print(cli.ViewOf(rec, now))
			if a.Stdout.Err != nil {
				return nil
			}
			continue
		}
		t.Row(rowOf(rec, now)...)
	}
	if a.JSON {
		return nil
	}
	if len(t.Rows) == 0 {
		fmt.Fprintf(a.Stderr, "croft: no%s\n", cmp.Or(which(prefix, only), " keys"))
		return nil
	}
	t.Flush()
	return nil
}

// which describes a choice of keys in a sentence. It is empty for all keys.
func which(prefix, only string) (text string) {
	if prefix == "" && only == "" {
		return ""
	}
	text = " keys"
	if prefix != "" {
		text += " that begin with " + cli.Word(prefix)
	}
	if only != "" {
		text += " in state " + only
	}
	return text
}

func rowOf(rec tenure.Record, now time.Time) []cli.Cell {
	now = cli.NowFor(rec, now)
	state, colour := cli.StateOf(rec, now)
	progress := ""
	if rec.Progress != "" {
		progress = fmt.Sprintf("%s (%s)", cli.Line(rec.Progress), cli.Ago(now, rec.ProgressAt))
	}
	return []cli.Cell{
		cli.PlainCell(cli.Word(rec.Key)),
		{Text: state, Colour: colour},
		cli.PlainCell(cli.Word(rec.Owner)),
		cli.PlainCell(strconv.FormatInt(int64(rec.Token), 10)),
		cli.PlainCell(leftOf(rec, now)),
		cli.PlainCell(cli.Ago(now, rec.Acquired)),
		cli.PlainCell(progress),
	}
}

// leftOf is how much longer the state lasts if nothing happens.
func leftOf(rec tenure.Record, now time.Time) string {
	switch state, _ := cli.StateOf(rec, now); state {
	case "held", "reserved":
		return cli.Short(rec.Deadline.Sub(now))
	case "hold":
		return cli.Short(rec.HoldUntil.Sub(now))
	case "period":
		if rec.Every != tenure.Once {
			return cli.Short(rec.Due(rec.Every).Sub(now))
		}
	case "expired":
		return cli.Ago(now, rec.Deadline)
	}
	return "-"
}
