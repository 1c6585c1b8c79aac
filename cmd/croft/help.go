package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// helpCommand replaces cobra's own. For an unknown command that one prints the
// help of everything, and no error.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		GroupID: cli.GroupTool,
		Short:   "Help about any command",
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				message := fmt.Sprintf("no help about %q", args)
				if len(args) == 1 {
					message = cli.DidYouMean(fmt.Sprintf("no help about %q", args[0]), root.SuggestionsFor(args[0]))
				}
				return &cli.UsageError{Message: message, Hint: "see: croft --help"}
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			found, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range found.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
