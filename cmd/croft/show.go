package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) showCommand() *cobra.Command {
	var raw string
	c := &cobra.Command{
		Use:     "show KEY",
		GroupID: cli.GroupLook,
		Short:   "Show everything the store knows of one key",
		Long: `Show everything the store knows of one key. In JSON the checkpoint is in base64.
--raw checkpoint prints it as it is, and nothing if there is none. On a terminal
it escapes unprintable characters.`,
		Example: `  croft show reports/daily
  croft show reports/daily --json | jq .deadline
  croft show reports/daily --raw checkpoint`,
		Args:              cli.Takes("KEY"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			if raw != "" && raw != "checkpoint" {
				return cli.Invalid("--raw %q: it must be checkpoint", raw)
			}
			return a.show(c.Context(), args[0], raw != "")
		},
	}
	c.Flags().StringVar(&raw, "raw", "", "print only this `part`, as it is: checkpoint")
	_ = c.RegisterFlagCompletionFunc("raw",
		cobra.FixedCompletions([]string{"checkpoint"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// show prints a record, or only its checkpoint if raw is set.
func (a *app) show(ctx context.Context, key string, raw bool) error {
	rec, now, err := a.record(ctx, key)
	if err != nil {
		return err
	}
	if raw {
		a.PrintRaw([]byte(rec.Checkpoint))
		return nil
	}
	if a.JSON {
		if rec.IsZero() {
			rec.Key, rec.State = key, tenure.Free
		}
		a.Print(cli.ViewOf(rec, now))
		return nil
	}
	p := a.Palette()
	fmt.Fprintln(a.Stdout, p.Paint(cli.Bold, cli.Word(key)))
	for _, f := range cli.DescribeRecord(p, rec, now) {
		fmt.Fprintf(a.Stdout, "  %s%s\n", p.Paint(cli.Faint, fmt.Sprintf("%-12s", f[0])), f[1])
	}
	return nil
}

// record reads one key, with its history, and the store's time.
func (a *app) record(ctx context.Context, key string) (rec tenure.Record, now time.Time, err error) {
	if err := fence.CheckKey(key); err != nil {
		return rec, now, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	st, err := a.Open(ctx)
	if err != nil {
		return rec, now, err
	}
	defer st.Close()
	defer a.AskOnTerminal()()
	if rec, err = st.Get(ctx, key); err != nil {
		return rec, now, store.Unknown(err)
	}
	if now, err = st.Now(ctx); err != nil {
		return rec, now, store.Unknown(err)
	}
	return rec, now, nil
}
