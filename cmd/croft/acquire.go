package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func (a *app) acquireCommand() *cobra.Command {
	var o croft.LeaseOptions
	var above int64
	var targets []string
	c := &cobra.Command{
		Use:     "acquire KEY",
		GroupID: cli.GroupHold,
		Short:   "Take the lease on a key and print it",
		Long: `Take the lease on a key and print it: one line, or JSON with --json. Pass what
it prints to renew, report and release.

Nothing renews the lease by itself. Call "croft renew" well before the TTL has
passed, or use "croft run", which does all of it. The printed lease holds a
secret. Keep it in a file that only you can read.

Exit code 11 says that another owner holds the key, or that --wait ran out.`,
		Example: `  (umask 077; croft acquire reports/daily --ttl 5m > lease)
  croft renew @lease
  croft release @lease

  croft acquire reports/daily --wait 30s --json
  croft acquire reports/daily --guard out/today.json   # shut older owners out of the file at once`,
		Args:              cli.Takes("KEY"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			o.Above = fence.Token(above)
			if above < 0 || o.Above > tenure.MaxAbove {
				return cli.Invalid("--above %d: it must be between 0 and %d", above, tenure.MaxAbove)
			}
			if err := fence.CheckAhead(o.Above, time.Now()); err != nil {
				return cli.Invalid("--above %d: %v", above, err)
			}
			return a.acquire(c.Context(), args[0], o, targets)
		},
	}
	flags := c.Flags()
	cli.TTLFlag(flags, &o.TTL, time.Minute, "how long the lease lasts without renewal")
	cli.WaitFlag(flags, &o.WaitFor)
	flags.Int64Var(&above, "above", 0,
		"ask for a token above this one: after a write was refused although you hold the lease")
	cli.EveryFlags(c, &o.Every, "refuse")
	cli.SpanFlag(flags, &o.HoldFor, "hold",
		"after success keep the key from everybody until this long after acquiring it")
	cli.GuardFlag(flags, &targets)
	return c
}

func (a *app) acquire(ctx context.Context, key string, o croft.LeaseOptions, targets []string) error {
	if err := fence.CheckKey(key); err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	guards, closeGuards, err := cli.OpenGuards(ctx, targets)
	if err != nil {
		return err
	}
	defer closeGuards()
	o.Guards = guards

	client, end, err := a.Client(ctx)
	if err != nil {
		return err
	}
	defer end()
	lease, err := client.Acquire(ctx, key, &o)
	if err != nil {
		return err
	}
	a.printLease(cli.LeaseOf(lease.Deed(), lease.Record()))
	if a.Stdout.Err != nil {
		// Nobody has the lease, so nobody would release it.
		a.Stdout.Reported = true
		if err := lease.Fail(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("the lease could not be printed (%w), nor released: %w", a.Stdout.Err, err)
		}
		fmt.Fprintf(a.Stderr, "croft: the lease could not be printed, so it was released: %v\n", a.Stdout.Err)
		return cli.ExitError(cli.ExitFailed)
	}
	return nil
}

func (a *app) printLease(v cli.LeaseView) {
	if a.JSON {
		a.Print(v)
		return
	}
	fmt.Fprintln(a.Stdout, v.Lease)
}
