package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// completionTrailer is the last line of a file that install wrote. Install
// replaces no other file.
const completionTrailer = "# Written by \"croft completion install\", which may write it again.\n"

// installShells are the shells that look for completions in a user's folder.
var installShells = []string{"bash", "zsh", "fish"}

func (a *app) completionInstallCommand() *cobra.Command {
	var shell string
	var dryRun bool
	c := &cobra.Command{
		Use:   "install",
		Short: "Write the completion script where your shell finds it",
		Long: `Write the completion script into the folder of your home in which your shell
looks for completions, and say what is left to do. The shell is that of SHELL,
unless --shell names another.

  bash  $XDG_DATA_HOME/bash-completion/completions/croft (~/.local/share)
  zsh   $XDG_DATA_HOME/zsh/site-functions/_croft (~/.local/share)
  fish  $XDG_CONFIG_HOME/fish/completions/croft.fish (~/.config)

Croft makes missing folders. It changes no other file, such as ~/.zshrc, and
replaces no file that it has not written itself. After an update of croft, run
it again.`,
		Example: `  croft completion install
  croft completion install --shell zsh --dry-run`,
		Args: cli.Takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if shell == "" {
				shell = filepath.Base(os.Getenv("SHELL"))
				if !slices.Contains(installShells, shell) {
					return cli.Invalid("SHELL %q: croft does not know that shell; "+
						"choose one with --shell bash, zsh or fish", os.Getenv("SHELL"))
				}
			}
			if !slices.Contains(installShells, shell) {
				return unknownShell(shell, installShells)
			}
			return a.installCompletion(c.Root(), shell, dryRun)
		},
	}
	c.Flags().StringVar(&shell, "shell", "", "bash, zsh or fish (default: the one that SHELL names)")
	_ = c.RegisterFlagCompletionFunc("shell",
		cobra.FixedCompletions(installShells, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be written, and write nothing")
	return c
}

// installedView is an installed completion in JSON.
type installedView struct {
	Shell   string `json:"shell"`
	Path    string `json:"path"`
	Written bool   `json:"written"`
	Next    string `json:"next"`
}

func (a *app) installCompletion(root *cobra.Command, shell string, dryRun bool) error {
	path, err := completionPath(shell)
	if err != nil {
		return err
	}
	if err := checkOwnCompletion(shell, path); err != nil {
		return err
	}
	if !dryRun {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		var script bytes.Buffer
		writeCompletion(root, shell, &script)
		script.WriteString(completionTrailer)
		err := cli.ReplaceFile(path, func(w io.Writer) error {
			_, err := script.WriteTo(w)
			return err
		})
		if err != nil {
			return err
		}
	}
	next := map[string]string{
		"bash": "begin a new shell; if croft does not complete there, install the package bash-completion",
		"zsh": fmt.Sprintf("have this line in ~/.zshrc, above the one with compinit, and begin a new shell: "+
			"fpath=(%s $fpath)", cli.Word(filepath.Dir(path))),
		"fish": "begin a new shell",
	}[shell]
	switch {
	case a.JSON:
		a.Print(installedView{shell, path, !dryRun, next})
	case dryRun:
		fmt.Fprintf(a.Stdout, "would write %s\nthen: %s\n", cli.Line(path), next)
	default:
		fmt.Fprintf(a.Stdout, "wrote %s\nnow: %s\n", cli.Line(path), next)
	}
	return nil
}

// completionPath is the file in which a shell looks for croft's completion. The
// shell goes by HOME, so croft does here, too.
func completionPath(shell string) (string, error) {
	folder := func(variable, usual string) (string, error) {
		if dir := os.Getenv(variable); filepath.IsAbs(dir) {
			return dir, nil
		}
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return "", cli.Invalid("HOME %q: it is no absolute path, so the shell looks nowhere; set it, or write the "+
				"script yourself: croft completion %s > FILE", home, shell)
		}
		return filepath.Join(home, filepath.FromSlash(usual)), nil
	}
	variable, usual, file := "XDG_DATA_HOME", ".local/share", "bash-completion/completions/croft"
	switch shell {
	case "zsh":
		file = "zsh/site-functions/_croft"
	case "fish":
		variable, usual, file = "XDG_CONFIG_HOME", ".config", "fish/completions/croft.fish"
	}
	dir, err := folder(variable, usual)
	return filepath.Join(dir, filepath.FromSlash(file)), err
}

// checkOwnCompletion returns an error if there is a file that croft must not
// replace.
func checkOwnCompletion(shell, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() && info.Size() < 1<<20 { // scripts are much smaller
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.HasSuffix(text, []byte(completionTrailer)) {
			return nil
		}
	}
	return cli.Invalid("file %s: it exists, and croft completion install did not write it; remove it, or write the "+
		"script elsewhere: croft completion %s > FILE", cli.Word(path), shell)
}
