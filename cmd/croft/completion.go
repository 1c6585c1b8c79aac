package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	c := &cobra.Command{
		Use:     "completion " + strings.Join(shells, "|"),
		GroupID: cli.GroupTool,
		Short:   "Print a completion script for your shell",
		Long: `Print a completion script for your shell. It completes commands, flags, and the
keys in the store. Bash needs its package bash-completion for it.

"croft completion install" writes the script where your shell finds it.`,
		Example: `  croft completion install
  source <(croft completion bash)
  croft completion zsh > "${fpath[1]}/_croft"
  croft completion fish > ~/.config/fish/completions/croft.fish
  croft completion powershell | Out-String | Invoke-Expression`,
		Args:      cli.Takes("SHELL"),
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(shells, args[0]) {
				return unknownShell(args[0], shells)
			}
			writeCompletion(c.Root(), args[0], a.Stdout)
			return nil
		},
	}
	c.AddCommand(a.completionInstallCommand())
	return c
}

// writeCompletion writes the completion script of a known shell. The sink and
// buffers that it writes to remember a failed write.
func writeCompletion(root *cobra.Command, shell string, w io.Writer) {
	switch shell {
	case "bash":
		_ = root.GenBashCompletionV2(w, true)
	case "zsh":
		_ = root.GenZshCompletion(w)
	case "fish":
		_ = root.GenFishCompletion(w, true)
	case "powershell":
		_ = root.GenPowerShellCompletionWithDesc(w)
	}
}

func unknownShell(name string, known []string) error {
	return &cli.UsageError{
		Message: fmt.Sprintf("unknown shell %q", name),
		Hint:    "known are " + strings.Join(known, ", "),
	}
}
