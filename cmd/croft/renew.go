package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) renewCommand() *cobra.Command {
	var resume bool
	c := &cobra.Command{
		Use:     "renew [@FILE|-]",
		GroupID: cli.GroupHold,
		Short:   "Renew a lease for another TTL",
		Long: `Renew a lease: its deadline moves to one TTL from now. Exit code 12 says that
the lease is lost. Then stop the work.

With --resume croft renews a lease also after its deadline, if no other owner
was granted the key meanwhile.

` + cli.LeaseHelp,
		Example: `  croft renew @lease
  croft renew @lease --resume      # after the machine slept
  while sleep 20; do croft renew @lease || break; done`,
		Args:              cli.Takes("[LEASE]"),
		ValidArgsFunction: cli.CompleteLease,
		RunE: func(c *cobra.Command, args []string) error {
			return a.renew(c.Context(), args, resume)
		},
	}
	c.Flags().BoolVar(&resume, "resume", false, "also after the deadline, if nobody else was granted the key")
	return c
}

// renewView is a renewed lease in JSON.
type renewView struct {
	Key      string      `json:"key"`
	Token    fence.Token `json:"token"`
	Deadline cli.When    `json:"deadline"`
}

func (a *app) renew(ctx context.Context, args []string, resume bool) error {
	_, rec, err := a.ByDeed(ctx, args, func(c *croft.Client, d tenure.Deed) (tenure.Record, error) {
		return c.Renew(ctx, d, resume)
	})
	if err != nil {
		return err
	}
	if a.JSON {
		a.Print(renewView{Key: rec.Key, Token: rec.Token, Deadline: cli.When(rec.Deadline)})
		return nil
	}
	a.Confirm("renewed %s for %s, until %s", cli.Word(rec.Key), rec.TTL,
		cli.ClockTime(rec.Renewed, rec.Deadline))
	return nil
}
