package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:     "completion " + strings.Join(shells, "|"),
		GroupID: cli.GroupTool,
		Short:   "Print a completion script for your shell",
		Long: `Print a completion script for your shell. It completes commands, flags, and the
keys in the store. Bash needs its package bash-completion for it.`,
		Example: `  source <(croft completion bash)
  croft completion zsh > "${fpath[1]}/_croft"
  croft completion fish > ~/.config/fish/completions/croft.fish
  croft completion powershell | Out-String | Invoke-Expression`,
		Args:      cli.Takes("SHELL"),
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			switch args[0] { // the sink remembers a failed write
			case "bash":
				_ = root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				_ = root.GenZshCompletion(a.Stdout)
			case "fish":
				_ = root.GenFishCompletion(a.Stdout, true)
			case "powershell":
				_ = root.GenPowerShellCompletionWithDesc(a.Stdout)
			default:
				return &cli.UsageError{
					Message: fmt.Sprintf("unknown shell %q", args[0]),
					Hint:    "known are " + strings.Join(shells, ", "),
				}
			}
			return nil
		},
	}
}
