package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

//go:generate go run . man ../../docs/man

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Hidden: true, // for packagers
		Short:  "Write the manual pages into a directory",
		Args:   cli.Takes("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
			c.Root().DisableAutoGenTag = true
			return writePages(c.Root(), args[0])
		},
	}
}

// writePages writes the page of a command and those of the commands below it.
func writePages(c *cobra.Command, dir string) error {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := writePages(sub, dir); err != nil {
				return err
			}
		}
	}
	// No date: it would be the day of the build, and make every build differ.
	date := time.Unix(0, 0).UTC()
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	header := &doc.GenManHeader{
		Title: strings.ToUpper(name), Section: "1", Source: "Croft", Manual: "Croft manual",
		Date: &date,
	}
	var page bytes.Buffer
	if err := doc.GenMan(c, header, &page); err != nil {
		return fmt.Errorf("manual page of %s: %w", c.CommandPath(), err)
	}
	text := bytes.Replace(page.Bytes(), []byte(`"Jan 1970"`), []byte(`""`), 1)
	c.Flags().VisitAll(func(f *pflag.Flag) { text = describeFlag(text, f) })
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) { text = describeFlag(text, f) })
	return os.WriteFile(filepath.Join(dir, name+".1"), text, 0o644)
}

// describeFlag writes a flag in a page as --help does: with the kind of its
// value, and with its default at the end if it has one. Cobra writes the
// default alone, also an empty one, as in --every= and --guard=[].
func describeFlag(page []byte, f *pflag.Flag) []byte {
	kind, _ := pflag.UnquoteUsage(f)
	if kind != "" {
		kind = ` \fI` + kind + `\fP`
	}
	value := ""
	switch f.DefValue {
	case "", "[]", "0", "false":
	default:
		value = " (default " + strings.Trim(f.DefValue, "[]") + ")"
	}
	line := regexp.MustCompile(`(?m)^((?:\\fB-\w\\fP, )?\\fB--` + regexp.QuoteMeta(f.Name) + `\\fP)\[?=.*\n(\t.*)$`)
	return line.ReplaceAllFunc(page, func(found []byte) []byte {
		m := line.FindSubmatch(found)
		return slices.Concat(m[1], []byte(kind+"\n"), m[2], []byte(value))
	})
}
