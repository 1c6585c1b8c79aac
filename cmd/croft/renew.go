package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) renewCommand() *cobra.Command {
	var resume bool
	var ttl time.Duration
	c := &cobra.Command{
		Use:     "renew [@FILE|-]",
		GroupID: cli.GroupHold,
		Short:   "Renew a lease for another TTL",
		Long: `Renew a lease: its deadline moves to one TTL from now. Exit code 12 says that
the lease is lost. Then stop the work.

With --ttl the lease has another TTL from now on. A longer one moves the
deadline at once. A shorter one does not bring the deadline nearer. Inside
"croft run" this changes the TTL of the command's own lease: croft run takes it
over with its next renewal, unless it is less than twice --grace.

With --resume croft renews a lease also after its deadline, if no other owner
was granted the key meanwhile.

` + cli.LeaseHelp,
		Example: `  croft renew @lease
  croft renew @lease --resume      # after the machine slept
  croft renew --ttl 10m            # inside croft run, before a long upload
  while sleep 20; do croft renew @lease || break; done`,
		Args:              cli.Takes("[LEASE]"),
		ValidArgsFunction: cli.CompleteLease,
		RunE: func(c *cobra.Command, args []string) error {
			if resume && ttl != 0 {
				return cli.Invalid("--ttl with --resume: renew with --resume first, then with --ttl")
			}
			return a.renew(c.Context(), args, resume, ttl)
		},
	}
	c.Flags().BoolVar(&resume, "resume", false, "also after the deadline, if nobody else was granted the key")
	cli.TTLFlag(c.Flags(), &ttl, 0, "change the TTL: how long others wait if the holder dies")
	return c
}

// renewView is a renewed lease in JSON.
type renewView struct {
	Key      string      `json:"key"`
	Token    fence.Token `json:"token"`
	Deadline cli.When    `json:"deadline"`
	TTL      string      `json:"ttl"`
}

func (a *app) renew(ctx context.Context, args []string, resume bool, ttl time.Duration) error {
	_, rec, err := a.ByDeed(ctx, args, func(c *croft.Client, d tenure.Deed) (tenure.Record, error) {
		if ttl != 0 {
			return c.SetTTL(ctx, d, ttl)
		}
		return c.Renew(ctx, d, resume)
	})
	if err != nil {
		return err
	}
	if a.JSON {
		a.Print(renewView{Key: rec.Key, Token: rec.Token, Deadline: cli.When(rec.Deadline), TTL: rec.TTL.String()})
		return nil
	}
	a.Confirm("renewed %s for %s, until %s", cli.Word(rec.Key), rec.TTL,
		cli.ClockTime(rec.Renewed, rec.Deadline))
	return nil
}
