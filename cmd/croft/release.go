package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) releaseCommand() *cobra.Command {
	var failed bool
	c := &cobra.Command{
		Use:     "release [@FILE|-]",
		GroupID: cli.GroupHold,
		Short:   "Give a lease back",
		Long: `Give a lease back: the key is free at once. Releasing again what you have
released is no error. Exit code 12 says that the lease was lost before.

After a success, --every and --hold of acquire apply. With --failed they do not,
so the next contender may try at once.

` + cli.LeaseHelp,
		Example: `  croft release @lease
  croft release @lease --failed
  croft release - < lease`,
		Args:              cli.Takes("[LEASE]"),
		ValidArgsFunction: cli.CompleteLease,
		RunE: func(c *cobra.Command, args []string) error {
			return a.release(c.Context(), args, failed)
		},
	}
	c.Flags().BoolVar(&failed, "failed", false, "the work did not succeed: period and hold do not apply")
	return c
}

// releaseView is a released lease in JSON. State is the key's present state:
// another owner may hold it already.
type releaseView struct {
	Key   string       `json:"key"`
	Token fence.Token  `json:"token"`
	State tenure.State `json:"state"`
	Ended tenure.End   `json:"ended"`
}

func (a *app) release(ctx context.Context, args []string, failed bool) error {
	deed, rec, err := a.ByDeed(ctx, args, func(c *croft.Client, d tenure.Deed) (tenure.Record, error) {
		return c.Release(ctx, d, failed)
	})
	if err != nil {
		return err
	}
	if a.JSON {
		v := releaseView{Key: deed.Key, Token: deed.Token, State: rec.State, Ended: tenure.EndReleased}
		if rec.Token == deed.Token && rec.Ended != "" {
			v.Ended = rec.Ended
		}
		a.Print(v)
		return nil
	}
	a.Confirm("released %s", cli.Word(deed.Key))
	return nil
}
