package workcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// delayFlag defines a flag for the time that an item waits.
func delayFlag(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.Var(&cli.Duration{Value: value, Most: work.MaxDelay, Examples: "30s, 5m or 24h"}, name, usage)
}

// workLeaseHelp ends the help of every command of an owner.
const workLeaseHelp = `Give the lease as claim printed it: @FILE, or - for standard input. Without an
argument croft takes the lease from CROFT_LEASE, which inside "croft work run"
names a file. If the item has a newer owner, nothing is changed and the exit
code is 13.`

func (a *app) workClaimCommand() *cobra.Command {
	claim := work.Claim{}
	var wait time.Duration
	var raise []string
	c := &cobra.Command{
		Use:   "claim QUEUE...",
		Short: "Take items that are ready and print their leases",
		Long: `Take the items that are ready, oldest first within the highest priority, and
print the lease of each on a line. Standard error says which item it is, and the
beginning of its payload. With --json croft prints payload and checkpoint whole,
in base64. So does "croft work show ID --raw payload". Pass the lease to heartbeat, report, checkpoint,
complete, fail and release.

Nothing keeps the item alive by itself. Call "croft work heartbeat" well before
the TTL has passed, or use "croft work run", which does all of it. The printed
lease holds a secret. Keep it in a file that only you can read. Exit code 11
says that nothing is ready. If a queue is paused or full, croft says so, and who
paused or limited it and why.

Croft raises the fence at the guards that an item names before it prints the
lease. If it cannot, it gives the item back for 30s and says why.

` + cli.RaiseHelp,
		Example: `  (umask 077; croft work claim thumbnails --ttl 5m > lease)
  croft work complete @lease --from thumbnail.json

  croft work claim thumbnails --wait 1m --json | tee item.json | jq -r '.payload | @base64d'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing argument: QUEUE")
			}
			return nil
		},
		ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			claim.Queues = args
			allowed, err := a.AllowRaise(raise)
			if err != nil {
				return err
			}
			return a.workClaim(c.Context(), claim, wait, allowed)
		},
	}
	flags := c.Flags()
	cli.TTLFlag(flags, &claim.TTL, work.DefaultTTL, "how long the item is kept without a heartbeat")
	cli.RaiseFlag(c, &raise)
	flags.IntVar(&claim.Limit, "limit", 1, "how many items to take at most")
	flags.Var(&cli.Duration{Value: &wait, Most: tenure.MaxPeriod, Forever: true, Examples: "30s, 5m, or forever"},
		"wait",
		"how long to wait while nothing is ready, or \"forever\" (default: one try)")
	return c
}

// claimPoll is the longest pause between two claims while waiting.
const claimPoll = time.Second

func (a *app) workClaim(
	ctx context.Context, claim work.Claim, wait time.Duration, allowed guard.Allowed,
) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	claim.Owner, claim.Instance, claim.Secret = a.Actor(), identity.Instance(), tenure.NewSecret()
	if err := claim.Check(); err != nil {
		return err
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	stopLine := a.WaitOnTerminal(strings.Join(claim.Queues, ","), wait, func() tenure.Record { return tenure.Record{} })
	defer stopLine()
	began, silent := time.Now(), time.Time{}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, claimPoll) {
		call, done := context.WithTimeout(ctx, a.Timeout)
		items, err := l.Claim(call, claim)
		done()
		switch {
		case len(items) > 0:
			stopLine()
			items, unfenced := a.fenced(ctx, l, items, claim, allowed)
			if err := a.printClaimed(ctx, l, items, claim.Secret); err != nil {
				return err
			}
			return unfenced
		case ctx.Err() != nil:
			return fmt.Errorf("claim: %w", ctx.Err())
		case store.IsFault(err) && wait == 0 && !claim.Again:
			return err // nothing was sent, and asking again does not help
		case errors.Is(err, work.ErrUnknown):
			claim.Again = true
			if silent.IsZero() {
				silent = time.Now()
			}
			a.NoAnswer("", err)
			if time.Since(silent) >= 2*a.Timeout {
				return err
			}
		case err != nil:
			return err
		default:
			claim.Again, silent = false, time.Time{}
			a.Answered()
			if wait != croft.Forever && time.Since(began)+pause > wait {
				return a.nothingReady(ctx, l, claim.Queues)
			}
		}
		if clock.Sleep(ctx, pause) != nil {
			return fmt.Errorf("claim: %w", ctx.Err())
		}
	}
}

func quoted(words []string) []string {
	shown := make([]string, len(words))
	for i, w := range words {
		shown[i] = cli.Word(w)
	}
	return shown
}

// showClaimed says on standard error what was claimed. Standard output has the
// leases alone.
func (a *app) showClaimed(it work.Item) {
	payload := "no payload"
	if len(it.Payload) > 0 {
		payload = cli.Excerpt(it.Payload)
	}
	fmt.Fprintf(a.Stderr, "croft: %s of %s, attempt %d of %d: %s\n", it.ID, cli.Word(it.Queue), it.Attempts, it.Limit,
		payload)
}

// printClaimed prints leases. It gives back the items whose leases it cannot
// print, because nobody has those leases.
func (a *app) printClaimed(ctx context.Context, l work.Ledger, items []work.Item, secret tenure.Secret) error {
	for i, it := range items {
		if a.JSON {
			a.Print(claimViewOf(it, secret))
		} else {
			fmt.Fprintln(a.Stdout, it.Deed(secret).Text())
			a.showClaimed(it)
		}
		if a.Stdout.Err == nil {
			continue
		}
		a.Stdout.Reported = true
		var back []work.Request
		for _, it := range items[i:] {
			back = append(back, work.Request{Verb: work.Release, ID: it.ID, Token: it.Record.Token, Secret: secret})
		}
		for _, answer := range a.apply(context.WithoutCancel(ctx), l, back) {
			if answer.Err != nil {
				return fmt.Errorf("a lease could not be printed (%w), nor given back: %w", a.Stdout.Err, answer.Err)
			}
		}
		fmt.Fprintf(a.Stderr, "croft: a lease could not be printed, so %d items were given back: %v\n", len(back),
			a.Stdout.Err)
		return cli.ExitError(cli.ExitFailed)
	}
	return nil
}
