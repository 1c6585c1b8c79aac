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
	var out string
	var replace bool
	c := &cobra.Command{
		Use:     "acquire KEY",
		GroupID: cli.GroupHold,
		Short:   "Take the lease on a key and print it",
		Long: `Take the lease on a key and print it: one line, or JSON with --json. Pass what
it prints to renew, report and release.

Nothing renews the lease by itself. Call "croft renew" well before the TTL has
passed, or use "croft run", which does all of it. The lease holds a secret, so
it belongs in a file that only you can read. --out makes that file, in one step
and only if you get the key: a run that is refused leaves the lease of the run
before in place. It replaces a lease that is over. It refuses to replace a live
lease of another key, or anything that is no lease, unless you add --replace.

` + cli.DefaultsHelp + `

Exit code 11 says that another owner holds the key, or that --wait ran out.`,
		Example: `  croft acquire reports/daily --ttl 5m --out lease
  croft renew @lease
  croft release @lease

  croft acquire reports/daily --wait 30s --json
  croft acquire reports/daily --guard out/today.json   # shut older owners out of the file at once`,
		Args:              cli.Takes("KEY"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			if err := fence.CheckKey(args[0]); err != nil {
				return err
			}
			if err := a.ApplyDefaults(c.Flags(), args[0], &o.TTL, &o.Every, &targets); err != nil {
				return err
			}
			o.Above = fence.Token(above)
			if above < 0 || o.Above > tenure.MaxAbove {
				return cli.Invalid("--above %d: it must be between 0 and %d", above, tenure.MaxAbove)
			}
			if err := fence.CheckAhead(o.Above, time.Now()); err != nil {
				return cli.Invalid("--above %d: %v", above, err)
			}
			var file *leaseFile
			switch given := c.Flags().Changed("out"); {
			case given && out == "":
				return cli.Invalid("--out: it is empty; name a file for the lease, or leave it out to print it")
			case given:
				var err error
				if file, err = newLeaseFile(out, replace); err != nil {
					return err
				}
				defer file.remove()
			case replace:
				return cli.Invalid("--replace: it belongs to --out FILE")
			}
			return a.acquire(c.Context(), args[0], o, targets, file)
		},
	}
	flags := c.Flags()
	cli.TTLFlag(flags, &o.TTL, cli.DefaultTTL, "how long the lease lasts without renewal")
	cli.WaitFlag(flags, &o.WaitFor)
	flags.Int64Var(&above, "above", 0,
		"ask for a token above this one: after a write was refused although you hold the lease")
	cli.EveryFlags(c, &o.Every, "refuse")
	cli.SpanFlag(flags, &o.HoldFor, "hold",
		"after success keep the key from everybody until this long after acquiring it")
	cli.GuardFlag(flags, &targets)
	flags.StringVar(&out, "out", "", "write the lease to this `file`, which only you can read, instead of printing it")
	flags.BoolVar(&replace, "replace", false, "let --out replace whatever the file holds")
	return c
}

// acquire takes the lease. It prints it, or saves it if there is a file.
func (a *app) acquire(
	ctx context.Context, key string, o croft.LeaseOptions, targets []string, file *leaseFile,
) error {
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
	if file != nil {
		if err := a.checkFile(ctx, client, file, key); err != nil {
			return err
		}
	}
	lease, err := a.await(ctx, client, key, &o)
	if err != nil {
		return err
	}
	if file != nil {
		// Another run may have put its lease there during the wait.
		err := a.checkFile(ctx, client, file, key)
		if err == nil {
			err = file.save(lease.Deed())
		}
		if err != nil {
			if lost := lease.Fail(context.WithoutCancel(ctx)); lost != nil {
				return fmt.Errorf("the lease could not be saved (%w), nor released: %w", err, lost)
			}
			fmt.Fprintf(a.Stderr, "croft: the lease could not be saved, so it was released: %s\n",
				cli.Lines(a.Redact(err.Error())))
			return cli.ExitError(cli.ExitFailed)
		}
		a.printSaved(cli.LeaseOf(lease.Deed(), lease.Record()), file.path)
		return nil
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

// checkFile refuses to replace a file that somebody still needs.
func (a *app) checkFile(ctx context.Context, client *croft.Client, file *leaseFile, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	return file.check(ctx, client.Store(), key)
}

func (a *app) printLease(v cli.LeaseView) {
	if a.JSON {
		a.Print(v)
		return
	}
	fmt.Fprintln(a.Stdout, v.Lease)
}
