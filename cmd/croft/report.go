package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "report MARKER [@FILE|-]",
		GroupID: cli.GroupHold,
		Short:   "Report progress of the work",
		Long: `Report progress: a short marker that ls and show display with its age. It proves
that the work advances, which a renewal does not. It does not move the deadline.
Under "croft run --stall-after" a job loses its lease if it reports nothing for
that long.

` + cli.LeaseHelp,
		Example: `  croft report "page 17 of 40"
  croft report checkpoint-3 @lease`,
		Args:              cli.Takes("MARKER", "[LEASE]"),
		ValidArgsFunction: cli.CompleteNothingThenLease,
		RunE: func(c *cobra.Command, args []string) error {
			return a.report(c.Context(), args[0], args[1:])
		},
	}
}

// reportView is a report in JSON.
type reportView struct {
	Key        string      `json:"key"`
	Token      fence.Token `json:"token"`
	Progress   string      `json:"progress"`
	ProgressAt cli.When    `json:"progress_at"`
	Deadline   cli.When    `json:"deadline"`
}

func (a *app) report(ctx context.Context, marker string, args []string) error {
	if marker == "" {
		return cli.Invalid("marker: it is empty; say how far the work has got")
	}
	_, rec, err := a.ByDeed(ctx, args, func(c *croft.Client, d tenure.Deed) (tenure.Record, error) {
		return c.Report(ctx, d, marker)
	})
	if err != nil {
		return err
	}
	if a.JSON {
		a.Print(reportView{
			Key: rec.Key, Token: rec.Token, Progress: rec.Progress, ProgressAt: cli.When(rec.ProgressAt),
			Deadline: cli.When(rec.Deadline),
		})
		return nil
	}
	a.Confirm("%s: %s", cli.Word(rec.Key), cli.Line(rec.Progress))
	return nil
}
