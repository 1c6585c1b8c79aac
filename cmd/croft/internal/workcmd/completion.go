package workcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/work"
)

// completed calls look with the ledger. It returns nothing if the ledger does
// not exist or is slow.
func (a *app) completed(c *cobra.Command, look func(ctx context.Context, l work.Ledger) []string) []string {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, cli.CompletionTime)
	defer cancel()
	l, err := a.lookUpLedger(ctx)
	if err != nil {
		return nil
	}
	defer l.Close()
	return look(ctx, l)
}

// completeQueue completes the first argument with the queues of the ledger.
func (a *app) completeQueue(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeQueues(c, args, begun)
}

// completeQueues completes every argument with queues.
func (a *app) completeQueues(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completed(c, func(ctx context.Context, l work.Ledger) []string {
		stats, err := l.Stats(ctx, "")
		if err != nil {
			return nil
		}
		var queues []string
		for _, s := range stats {
			if cli.Completable(s.Queue) && len(queues) < cli.CompletionKeys {
				queues = append(queues, s.Queue)
			}
		}
		return queues
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeItems completes ids of items in one of the states, or in any.
func (a *app) completeItems(states ...work.State) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completed(c, func(ctx context.Context, l work.Ledger) []string {
			var ids []string
			for it, err := range l.List(ctx, work.Query{States: states, Newest: true, Limit: cli.CompletionKeys}) {
				if err != nil {
					break
				}
				ids = append(ids, cobra.CompletionWithDesc(string(it.ID), string(it.State)+" "+cli.Line(it.Queue)))
			}
			return ids
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeEffects completes identities of effects that are not yet sent.
func (a *app) completeEffects(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completed(c, func(ctx context.Context, l work.Ledger) []string {
		var ids []string
		query := work.EffectQuery{
			States: []work.EffectState{work.Unknown, work.Failed, work.Pending},
			Limit:  cli.CompletionKeys,
		}
		for e, err := range l.Effects(ctx, query) {
			if err != nil {
				break
			}
			if id := e.EffectID.String(); cli.Completable(id) {
				ids = append(ids, cobra.CompletionWithDesc(id, string(e.State)+" "+cli.Line(e.To)))
			}
		}
		return ids
	}), cobra.ShellCompDirectiveNoFileComp
}

// CompleteQueues completes the value of a flag with the queues of the ledger.
func CompleteQueues(a *cli.App) cobra.CompletionFunc { return (&app{a}).completeQueues }
