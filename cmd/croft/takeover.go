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

func (a *app) takeoverCommand() *cobra.Command {
	var note, to string
	var raise []string
	var ttl time.Duration
	var create bool
	c := &cobra.Command{
		Use:     "takeover KEY --note WHY",
		GroupID: cli.GroupHand,
		Short:   "Take a key from its holder by hand",
		Long: `Take a key from its present holder. The store keeps who did it and why. It burns
a new token. Croft raises the fence at the guards that the holder named, so they
refuse the holder's writes from now on. Standard error says where that worked.

` + cli.RaiseHelp + `

Without --to you hold the key yourself, and croft prints the lease as acquire
does. With --to nobody holds it, and only the named owner can take it until the
time is up.`,
		Example: `  croft takeover reports/daily --note "host is down"
  croft takeover reports/daily --note "moving it" --to cron@web2 --ttl 10m`,
		Args:              cli.Takes("KEY"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			toGiven := c.Flags().Changed("to")
			if toGiven && to == "" {
				return cli.Invalid("--to: it is empty; name the owner the key is for, or leave it out to take the " +
					"key " +
					"yourself")
			}
			allowed, err := a.AllowRaise(raise)
			if err != nil {
				return err
			}
			return a.takeover(c.Context(), args[0], to, create,
				croft.ByHand{Actor: a.Owner, Note: note, TTL: ttl, Raise: allowed})
		},
	}
	flags := c.Flags()
	cli.NoteFlag(c, &note)
	flags.StringVar(&to, "to", "", "reserve the key for this owner instead of holding it")
	cli.RaiseFlag(c, &raise)
	createFlag(c, &create)
	cli.TTLFlag(flags, &ttl, 0, "how long your lease lasts (default 1m), or the reservation (default 10m)")
	return c
}

// takeoverView is the operator's new lease in JSON.
type takeoverView struct {
	cli.LeaseView
	Raised []cli.RaiseView `json:"raised"`
}

// byHandView is a revoked or reserved key in JSON.
type byHandView struct {
	Key      string          `json:"key"`
	Token    fence.Token     `json:"token"`
	Stamp    string          `json:"stamp"` // of the burned token; guard raise takes it
	State    tenure.State    `json:"state"`
	Owner    string          `json:"owner"`
	Cause    tenure.Cause    `json:"cause"`
	Actor    string          `json:"actor"`
	Note     string          `json:"note"`
	Deadline cli.When        `json:"deadline"`
	TTL      string          `json:"ttl"`
	Raised   []cli.RaiseView `json:"raised"`
}

// createFlag defines --create.
func createFlag(c *cobra.Command, create *bool) {
	c.Flags().BoolVar(create, "create", false, "act even if nothing is known of the key")
}

// mustKnow refuses a key of which the store knows nothing, unless create is
// set. A mistyped key would otherwise look like a success.
func (a *app) mustKnow(ctx context.Context, client *croft.Client, key string, create bool) error {
	if create {
		return nil
	}
	get, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	rec, err := client.Store().Get(get, key)
	if err != nil || !rec.IsZero() {
		return err
	}
	list, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	return cli.Unknown(list, client.Store(), key, "--create")
}

func (a *app) takeover(ctx context.Context, key, to string, create bool, h croft.ByHand) error {
	if err := fence.CheckKey(key); err != nil {
		return err
	}
	client, end, err := a.Client(ctx)
	if err != nil {
		return err
	}
	defer end()
	stop := a.AskOnTerminal()
	defer stop()
	if err := a.mustKnow(ctx, client, key, create); err != nil {
		return err
	}
	if to != "" {
		t, err := client.Reserve(ctx, key, to, h)
		stop()
		if t == nil {
			return err
		}
		return a.printTransfer(t,
			fmt.Sprintf("reserved %s for %s for %s", cli.Word(key), cli.Word(t.Record.Owner), t.Record.TTL))
	}
	t, err := client.Takeover(ctx, key, h)
	stop()
	if t == nil {
		return err
	}
	raised := a.printRaised(t)
	if a.JSON {
		a.Print(takeoverView{cli.LeaseOf(t.Deed, t.Record), raised})
	} else {
		a.printLease(cli.LeaseOf(t.Deed, t.Record))
	}
	if a.Stdout.Err != nil {
		// Keep the key: giving it back would let in the holder whom the
		// operator wants out.
		a.Stdout.Reported = true
		fmt.Fprintf(a.Stderr, "croft: the lease could not be printed (%v); the key is yours for %s all the same\n",
			a.Stdout.Err, t.Record.TTL)
		return cli.ExitError(cli.ExitFailed)
	}
	return unfenced(t)
}

// unfenced returns exit code 1 if the fence is not up at a guard that the
// holder had named. printRaised has printed where and why.
func unfenced(t *croft.Transfer) error {
	for _, r := range t.Raised {
		if r.Err != nil {
			return cli.ExitError(cli.ExitFailed)
		}
	}
	return nil
}

// printTransfer prints the result of a revocation or reservation.
func (a *app) printTransfer(t *croft.Transfer, text string) error {
	raised := a.printRaised(t)
	if !a.JSON {
		a.Confirm("%s", text)
		return unfenced(t)
	}
	rec := t.Record
	a.Print(byHandView{
		Key: rec.Key, Token: rec.Token, Stamp: rec.Stamp().String(), State: rec.State, Owner: rec.Owner,
		Cause: rec.Cause, Actor: rec.Actor, Note: rec.Note,
		Deadline: cli.When(rec.Deadline), TTL: rec.TTL.String(), Raised: raised,
	})
	return unfenced(t)
}

// printRaised prints on standard error from whom the key was taken and where
// the fence is up. It returns the guards for JSON.
func (a *app) printRaised(t *croft.Transfer) []cli.RaiseView {
	if before := t.Before; before.Alive(t.Record.Acquired) {
		fmt.Fprintf(a.Stderr, "croft: taken from %s (token %d)\n", cli.Word(before.Owner), before.Token)
	}
	if len(t.Raised) == 0 {
		fmt.Fprintln(a.Stderr, "croft: fence: none named by the holder")
		a.AdviseRaise(t.Record.Stamp())
	}
	return a.PrintRaised(t.Raised, t.Record.Stamp())
}
