package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

func (a *app) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "history KEY",
		GroupID: cli.GroupLook,
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
		Args:              cli.Takes("KEY"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			return a.history(c.Context(), args[0])
		},
	}
}

func (a *app) history(ctx context.Context, key string) error {
	rec, now, err := a.record(ctx, key)
	if err != nil {
		return err
	}
	if len(rec.History) == 0 && !a.JSON {
		fmt.Fprintf(a.Stderr, "croft: nothing is remembered of %s\n", cli.Word(key))
		return nil
	}
	t := a.Table("TOKEN", "WHEN", "OWNER", "CAUSE", "FOR", "ENDED", "BY HAND")
	t.Whole = true // people read a history for the reasons
	for i := len(rec.History) - 1; i >= 0; i-- {
		if a.JSON {
			a.Print(cli.TransferOf(rec, rec.History[i], now))
			continue
		}
		t.Row(cli.RowOfTerm(rec, rec.History[i], now)...)
	}
	if !a.JSON {
		t.Flush()
	}
	return nil
}
