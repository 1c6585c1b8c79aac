package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
)

// raiseHelp tells where an operator's act raises the fence.
const raiseHelp = `The holder chose those targets. Croft does not open them just because the holder
named them: it would send your credentials wherever the holder says. It raises
the fence in the store's own place (the same server and database, bucket or
file; with a store that only you can write to, also at files), and in the places
that you name with --raise or in CROFT_RAISE. If the fence is not up at every
target in the end, the exit code is 1. Croft uses the first place that fits a
target, those of --raise first.

Name a PostgreSQL database as the role that owns the fence table there. The
owner of a table can make its users run code, so croft refuses owners other than
that role and superusers. Put URLs with passwords into CROFT_RAISE: every user
of the machine sees arguments.`

func raiseFlag(c *cobra.Command, places *[]string) {
	c.Flags().StringArrayVar(places, "raise", nil, "also raise the fence at targets in this `place`: a folder, or a "+
		"URL such as s3://bucket/reports (repeatable; CROFT_RAISE adds more)")
}

// allowRaise returns the places where the operator lets croft raise the fence.
// The first place that fits a target is used, so flags come before the
// environment.
func allowRaise(places []string) (guard.Allowed, error) {
	return guard.Allow(append(slices.Clip(places), strings.Fields(os.Getenv(cli.EnvRaise))...)...)
}
