package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/backends"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

func schemaNames() []string { return slices.Sorted(maps.Keys(backends.Schemas)) }

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema ENGINE",
		GroupID: cli.GroupTool,
		Short:   "Print the tables that a database needs",
		Long: `Print the tables that croft creates in a database, for those who create them by
hand. A store creates its tables on first use if it may, and otherwise uses
those it finds.`,
		Example: "  croft schema postgres | psql -v ON_ERROR_STOP=1 mydb\n  croft schema sqlite | sqlite3 -bail app.db",
		Args:    cli.Takes("ENGINE"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return schemaNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, known := backends.Schemas[args[0]]
			if advice := backends.HowToGet(args[0]); advice != "" {
				return cli.Invalid("engine %q: %s", args[0], advice)
			}
			if !known {
				return cli.Invalid("engine %q: it has no tables that croft knows of; known are %s", args[0],
					strings.Join(schemaNames(), ", "))
			}
			if a.JSON {
				a.Print(map[string]string{"engine": args[0], "schema": text()})
				return nil
			}
			_, _ = fmt.Fprint(a.Stdout, text())
			return nil
		},
	}
}
