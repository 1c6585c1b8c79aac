package main

import (
	"context"
	"fmt"
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
