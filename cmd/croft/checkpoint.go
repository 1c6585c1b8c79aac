package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) checkpointCommand() *cobra.Command {
	in := cli.Content{What: "checkpoint", Most: tenure.MaxCheckpoint}
	c := &cobra.Command{
		Use:     "checkpoint STATE|- [@FILE|-]",
		GroupID: cli.GroupHold,
		Short:   "Save a few bytes for the next holder of the key",
		Long: `Save a checkpoint: where the next holder of the key shall begin, such as a
cursor. It has at most 1024 bytes, and everybody who can read the store can read
it. It replaces the checkpoint before it, and an empty one clears it. It stays
however the lease ends. The next holder reads it with "croft show KEY --raw
checkpoint". The store forgets it with everything else of the key, once the key
was not used for the store's retention, by default a day.

A checkpoint counts as progress, like "croft report". It does not move the
deadline. With --from the only argument is the lease.

` + cli.LeaseHelp,
		Example: `  croft checkpoint '{"page": 17}'
  croft checkpoint --from cursor
  croft show "$CROFT_KEY" --raw checkpoint`,
		Args:              cli.Takes("[STATE]", "[LEASE]"),
		ValidArgsFunction: cli.CompleteNothingThenLease,
		RunE: func(c *cobra.Command, args []string) error {
			data, lease, err := in.ReadBeforeLease(a.App, c, args)
			if err != nil {
				return err
			}
			if _, err := cli.ParseLease(string(data)); err == nil {
				return cli.Invalid("checkpoint: this is a lease, whose secret everybody could read there; write the " +
					"state first, and then the lease as @FILE or -")
			}
			return a.checkpoint(c.Context(), data, lease)
		},
	}
	in.Flag(c)
	return c
}

// checkpointView is a saved checkpoint in JSON.
type checkpointView struct {
	Key        string      `json:"key"`
	Token      fence.Token `json:"token"`
	Checkpoint []byte      `json:"checkpoint"`
	ProgressAt cli.When    `json:"progress_at"`
	Deadline   cli.When    `json:"deadline"`
}

func (a *app) checkpoint(ctx context.Context, data []byte, args []string) error {
	_, rec, err := a.ByDeed(ctx, args, func(c *croft.Client, d tenure.Deed) (tenure.Record, error) {
		return c.Save(ctx, d, data)
	})
	if err != nil {
		return err
	}
	if a.JSON {
		a.Print(checkpointView{
			Key: rec.Key, Token: rec.Token, Checkpoint: []byte(rec.Checkpoint), ProgressAt: cli.When(rec.ProgressAt),
			Deadline: cli.When(rec.Deadline),
		})
		return nil
	}
	if len(data) == 0 {
		a.Confirm("%s: cleared the checkpoint", cli.Word(rec.Key))
		return nil
	}
	a.Confirm("%s: saved %s", cli.Word(rec.Key), cli.BytesText(int64(len(data))))
	return nil
}
