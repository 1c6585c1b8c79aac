package workcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/work"
)

func (a *app) workRunNowCommand() *cobra.Command {
	req := work.Request{Verb: work.RunNow}
	var raise []string
	c := &cobra.Command{
		Use:   "run-now ID... --note WHY",
		Short: "Let waiting items be claimed at once",
		Long: `Let items be claimed at once that wait for their time: they were added with
--delay or --at, or wait after a failure. Their attempts and their errors stay.
If an item is kept for a named owner, anybody can claim it from now on.

An item that is dead, cancelled or done waits for nothing: "croft work replay"
brings it back.

` + actFenceHelp,
		Example: `  croft work run-now 0198c0de --note "the image server is back"
  croft work ls thumbnails --state waiting --limit 0 --json | jq -r .id | xargs croft work run-now --note "it is back"`,
		Args:              items,
		ValidArgsFunction: a.completeItems(work.Waiting),
		RunE: func(c *cobra.Command, args []string) error {
			return a.byHand(c.Context(), args, raise, req,
				func(answer work.Answer) string { return fmt.Sprintf("%s: can be claimed now", answer.Item.ID) })
		},
	}
	cli.NoteFlag(c, &req.Note)
	cli.RaiseFlag(c, &raise)
	return c
}
