package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/guard"
)

// envRaise lists places, separated by spaces, as --raise does.
const envRaise = "CROFT_RAISE"

// raiseHelp tells where an operator's act raises the fence.
const raiseHelp = `The holder chose those targets, so croft does not open them just because they are there: it would send your credentials
wherever the holder says. It raises the fence in the store's own place (the same server and database, bucket or file; with a
store that only you can write to, also at files) and in the places that you name with --raise or in CROFT_RAISE. If the fence
is not up at every target in the end, the exit code is 1. The first place that fits a target is used, those of --raise first.

Name a PostgreSQL database as the role that owns the fence table there: the owner can have code run by whoever uses it, so other
owners than superusers are refused. URLs with passwords belong into CROFT_RAISE: every user of the machine sees arguments.`

func raiseFlag(c *cobra.Command, places *[]string) {
	c.Flags().StringArrayVar(places, "raise", nil, "also raise the fence at targets in this `place`: a folder, or a URL such as s3://bucket/reports (repeatable; CROFT_RAISE adds more)")
}

// allowRaise is where the operator lets the fence be raised. The first place
// that fits is used: a flag comes before the environment, as everywhere.
func allowRaise(places []string) (guard.Allowed, error) {
	return guard.Allow(append(slices.Clip(places), strings.Fields(os.Getenv(envRaise))...)...)
}
