package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
)

func (a *app) revokeCommand() *cobra.Command {
	var note string
	var raise []string
	var create bool
	c := &cobra.Command{
		Use:     "revoke KEY --note WHY",
		GroupID: cli.GroupHand,
		Short:   "End a lease by hand and free the key",
		Long: `End the lease or reservation on a key. The key is free at once, for anybody. The
store keeps who did it and why. It burns a new token. Croft raises the fence at
the guards that the holder named, so they refuse the holder's writes from now
on. Standard error says where that worked.

` + cli.RaiseHelp,
		Example:           `  croft revoke reports/daily --note "cancelled by the customer"`,
		Args:              cli.Takes("KEY"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			allowed, err := a.AllowRaise(raise)
			if err != nil {
				return err
			}
			return a.revoke(c.Context(), args[0], create, croft.ByHand{Actor: a.Owner, Note: note, Raise: allowed})
		},
	}
	cli.NoteFlag(c, &note)
	cli.RaiseFlag(c, &raise)
	createFlag(c, &create)
	return c
}

func (a *app) revoke(ctx context.Context, key string, create bool, h croft.ByHand) error {
	if err := fence.CheckKey(key); err != nil {
		return err
	}
	client, end, err := a.Client(ctx)
	if err != nil {
		return err
	}
	defer end()
	stop := a.AskOnTerminal()
	defer stop()
	if err := a.mustKnow(ctx, client, key, create); err != nil {
		return err
	}
	t, err := client.Revoke(ctx, key, h)
	stop()
	if t == nil {
		return err
	}
	return a.printTransfer(t, "revoked "+cli.Word(key)+": it is free")
}
