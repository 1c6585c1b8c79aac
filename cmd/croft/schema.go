package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// schemas are the engines whose tables a user may create by hand.
var schemas = map[string]func() string{
	"postgres": postgres.Schema,
	"sqlite":   sqlite.Schema,
}

func schemaNames() []string {
	names := make([]string, 0, len(schemas))
	for name := range schemas {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

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
			text, known := schemas[args[0]]
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
