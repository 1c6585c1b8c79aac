package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// runOptions are the flags of run.
type runOptions struct {
	lease      croft.LeaseOptions
	targets    []string
	grace      time.Duration
	graceGiven bool
	waitGiven  bool
	heldExit   int
	heldGiven  bool
	statusFile string
	passStore  bool
	metrics    string
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:     "run KEY [flags] -- COMMAND [ARGUMENT...]",
		GroupID: cli.GroupHold,
		Short:   "Run a command while holding the lease on a key",
		Long: `Take the lease on a key, run a command, renew the lease while it runs, and
release it.

If it is not your turn, because another holds the key or has done the work of
this period, croft says so and exits 0. With --quiet it says nothing then, so
cron sends no mail. Failures are said all the same, and so is a --wait that ran
out.

If croft cannot renew the lease, it stops the command: TERM first, KILL after
--grace. It begins early enough that the command and everything it started are
dead before another can be granted the key. If the lease is superseded or taken
over, croft kills all of it at once. Either way croft exits 12. If croft itself
dies, all of it dies too. When the command ends, croft kills what it left
running in the background.

The command finds CROFT_KEY, CROFT_TOKEN, CROFT_STAMP, CROFT_LEASE, CROFT_STORE
and CROFT_DEADLINE in its environment, so "croft write" and "croft report"
inside it need no flags. CROFT_STORE has the store's URL without its password. A
croft that the command calls finds the password in a file that only you can
read. A command that runs as another user, or that opens the store by itself,
may need --pass-store.

` + cli.DefaultsHelp + `

The command's exit code becomes croft's own, unless croft has something worse to
say. The last line on stderr, and --status-file, tell them apart.`,
		Example: `  croft run reports/daily --every 24h -- ./publish.sh
  croft run reports/daily --every 1d --quiet -- ./publish.sh      # in a crontab: mail comes only after a failure
  croft run sync --ttl 2m --guard out/today.json -- croft write out/today.json -- generate
  croft run train --stall-after 10m --max-hold 6h -- ./train      # which calls "croft report" as it goes
  croft run migrate --wait 10m -- ./migrate                       # wait for the holder instead of leaving
  croft run scrape --slots 3 --wait 1h -- ./scrape                # at most three at the same time`,
		Args:              cli.TakesCommand("KEY"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			o.graceGiven, o.waitGiven, o.heldGiven = c.Flags().Changed("grace"), c.Flags().Changed("wait"),
				c.Flags().Changed("held-exit")
			if err := fence.CheckKey(args[0]); err != nil {
				return err
			}
			if err := a.ApplyDefaults(c.Flags(), args[0], &o.lease.TTL, &o.lease.Every, &o.targets); err != nil {
				return err
			}
			if c.Flags().Changed("slots") {
				if err := o.checkSlots(); err != nil {
					return err
				}
			}
			if err := o.check(); err != nil {
				return err
			}
			return a.run(c.Context(), args[0], args[1:], o)
		},
	}
	flags := c.Flags()
	cli.TTLFlag(flags, &o.lease.TTL, cli.DefaultTTL,
		"how long others wait if this machine dies; renewed at a third of it")
	cli.WaitFlag(flags, &o.lease.WaitFor)
	flags.IntVar(&o.lease.Slots, "slots", 0,
		"let this `many` hold the key at the same time: the keys KEY/1, KEY/2, … (default one, KEY itself)")
	cli.EveryFlags(c, &o.lease.Every, "leave")
	cli.SpanFlag(flags, &o.lease.HoldFor, "hold",
		"after success keep the key from everybody until this long after the start")
	cli.SpanFlag(flags, &o.grace, "grace",
		"time between TERM and KILL when the lease is about to lapse, at most a third "+
			"of the TTL (default a sixth, at most 10s)")
	cli.SpanFlag(flags, &o.lease.StallAfter, "stall-after",
		"stop the command if it has not called \"croft report\" for this long")
	cli.SpanFlag(flags, &o.lease.MaxHold, "max-hold", "stop the command after this long, whatever it does")
	cli.GuardFlag(flags, &o.targets)
	cli.PassStoreFlag(flags, &o.passStore)
	flags.BoolVarP(&a.Quiet, "quiet", "q", false, "say nothing when it is not your turn")
	flags.IntVar(&o.heldExit, "held-exit", 0,
		"exit `code` when it is not your turn (default 0; 11 when an explicit --wait ran out)")
	flags.StringVar(&o.statusFile, "status-file", "", "write the outcome to this `file`, as JSON")
	flags.StringVar(&o.metrics, "metrics", "", "serve metrics for Prometheus at `host:port` while it runs (:port is "+
		"this machine only), or keep them in a file that ends in .prom")
	return c
}

// check refuses bad values before anything is opened.
func (o *runOptions) check() error {
	if !o.graceGiven {
		o.grace = min(o.lease.TTL/6, 10*time.Second)
	}
	if most := o.lease.TTL / 3; o.grace > most {
		return cli.Invalid("--grace %s: it must be at most a third of the TTL, %s; the command must be dead before "+
			"another can have the key", o.grace, most)
	}
	if o.heldExit < 0 || o.heldExit > 255 {
		return cli.Invalid("--held-exit %d: it must be between 0 and 255", o.heldExit)
	}
	o.lease.Notice = o.grace
	return nil
}

// checkSlots refuses numbers of slots, and what does not go with slots.
func (o *runOptions) checkSlots() error {
	switch n := o.lease.Slots; {
	case n < 1 || n > croft.MaxSlots:
		return cli.Invalid("--slots %d: there must be between 1 and %d", n, croft.MaxSlots)
	case o.lease.Every == tenure.Once:
		return cli.Invalid("--slots and --once: each slot would be done once by itself")
	case o.lease.Every != 0:
		return cli.Invalid("--slots and --every: each slot would have periods of its own")
	case len(o.targets) > 0:
		return cli.Invalid("--slots and --guard: a guard belongs to one key, and the slots are several")
	}
	return nil
}

// run runs a job from acquiring to releasing. It returns an ExitError when it
// has printed everything.
func (a *app) run(ctx context.Context, key string, command []string, o runOptions) error {
	// From the start of the command on, signals are for the command.
	asked, started := cli.Interruptible(ctx)
	defer started()
	status, err := newRunStatus(o.statusFile, key)
	if err != nil {
		return err
	}
	metrics, err := a.StartMetrics(o.metrics)
	if err != nil {
		return err
	}
	defer metrics.End()
	lease, end, err := a.runAcquire(asked, key, o, metrics.Observe())
	if err != nil {
		return a.runRefused(err, o, status)
	}
	defer end()
	status.key = lease.Key() // a slot's own
	j := &job{app: a, opts: o, held: lease, status: status, tally: metrics.Tally}
	if err := j.start(asked, command); err != nil {
		return j.notStarted(ctx, err)
	}
	started()
	return j.run(ctx)
}

// runAcquire opens the guards and the store, and takes the lease.
func (a *app) runAcquire(
	ctx context.Context, key string, o runOptions, observe func(croft.Event),
) (lease *croft.Lease, end func(), err error) {
	guards, closeGuards, err := cli.OpenGuards(ctx, o.targets)
	if err != nil {
		return nil, nil, err
	}
	client, closeClient, err := a.ObservedClient(ctx, observe)
	if err != nil {
		closeGuards()
		return nil, nil, err
	}
	o.lease.Guards = guards
	lease, err = a.await(ctx, client, key, &o.lease)
	closeGuards()
	if err != nil {
		closeClient()
		return nil, nil, err
	}
	return lease, closeClient, nil
}

// await acquires the lease. On a terminal it shows that it waits.
//
// A command under croft run that asks for its own key would wait for itself. It
// is refused at once.
func (a *app) await(
	ctx context.Context, client *croft.Client, key string, o *croft.LeaseOptions,
) (*croft.Lease, error) {
	stop := a.WaitOnTerminal(key, o.WaitFor, func() tenure.Record {
		ctx, cancel := context.WithTimeout(ctx, a.Timeout)
		defer cancel()
		rec, _ := client.Store().Get(ctx, key) // the line does without it
		return rec
	})
	defer stop()
	if o.WaitFor > 0 && os.Getenv(cli.EnvKey) == key {
		once := *o
		once.WaitFor = 0
		lease, err := client.Acquire(ctx, key, &once)
		if err = cli.Reentrant(err); err == nil || errors.Is(err, cli.ErrReentrant) {
			return lease, err
		}
	}
	lease, err := client.Acquire(ctx, key, o)
	return lease, cli.Reentrant(err)
}

// runRefused ends a run that did not get the lease. "Not your turn" is no
// error.
func (a *app) runRefused(err error, o runOptions, status *runStatus) error {
	if !errors.Is(err, croft.ErrHeld) || errors.Is(err, context.Canceled) {
		code := cli.OutcomeOf(err).Exit
		status.verdict, status.exit, status.message = verdictNotStarted, code, a.Redact(err.Error())
		status.write(a.Stderr)
		return err
	}
	code, silent := o.heldExit, a.Quiet
	var held *tenure.HeldError
	if o.waitGiven && o.lease.WaitFor > 0 && errors.As(err, &held) && held.Why != tenure.WhyPeriod {
		// The wait was in vain. Work that is already done for this period is
		// none to wait for.
		silent = false
		if !o.heldGiven {
			code = cli.ExitHeld
		}
	}
	status.verdict, status.exit, status.message = verdictHeld, code, a.Redact(err.Error())
	status.write(a.Stderr)
	switch {
	case silent:
	case a.JSON:
		a.Fail(err)
	default:
		fmt.Fprintf(a.Stderr, "croft: not your turn: %s\n", cli.Lines(a.Redact(err.Error())))
	}
	return cli.ExitError(code)
}
