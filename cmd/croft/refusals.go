package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/store/refusals"
)

// refusalView is a refusal in JSON.
type refusalView struct {
	Time   cli.When    `json:"time"`
	Change string      `json:"change"`
	Key    string      `json:"key"`
	Owner  string      `json:"owner"`
	Act    string      `json:"act"`
	Code   string      `json:"code"`
	Token  fence.Token `json:"token"`
	Newest fence.Token `json:"newest,omitempty"`
	Target string      `json:"target,omitempty"`
	Count  int         `json:"count"`
	// Admitted is set if the write was let in all the same.
	Admitted bool     `json:"admitted"`
	Total    int      `json:"total"`
	Since    cli.When `json:"since"`
}

func refusalViewOf(r refusals.Refusal) refusalView {
	return refusalView{
		cli.When(r.At), string(r.Kind()), r.Key, r.Owner, r.Act, r.Code, r.Token, r.Newest, r.Target, r.Count,
		r.Admitted, r.Total, cli.When(r.Since),
	}
}

// refusalText describes a refusal, without its owner, time and key. The target
// comes last, because it may be long and terminals cut lines.
func refusalText(r refusals.Refusal) string {
	text := glance.Refusal(r)
	if r.Target != "" {
		text += ", at " + cli.Word(r.Target)
	}
	return text
}

// whose returns the owner, or a question mark if it is not known.
func whose(owner string) string {
	if owner == "" {
		return "?"
	}
	return cli.Word(owner)
}

// listRefusals prints the refusals that the store remembers, the newest last.
func (a *app) listRefusals(all []refusals.Refusal, now time.Time, prefix string) {
	if a.JSON {
		for _, r := range all {
			a.Print(refusalViewOf(r))
		}
		return
	}
	if len(all) == 0 {
		about := which(prefix, "")
		if about != "" {
			about = " of" + about
		}
		fmt.Fprintf(a.Stderr, "croft: no refusals%s are remembered\n", about)
		return
	}
	t := a.Table("WHEN", "KEY", "OWNER", "TOKEN", "REFUSED")
	for _, r := range all {
		t.Row(cli.PlainCell(cli.Since(now, r.At)), cli.PlainCell(cli.Word(r.Key)), cli.PlainCell(whose(r.Owner)),
			cli.PlainCell(strconv.FormatInt(int64(r.Token), 10)), cli.PlainCell(refusalText(r)))
	}
	t.Flush()
}

// noteTimeout bounds how long a refused write takes to look up the owners and
// to leave a note in the store.
const noteTimeout = 2 * time.Second

// noteRefusal leaves a note of a refused write in the store, for operators. It
// adds the owners' names to the refusal. It does both only if the store answers
// within noteTimeout, and always returns err.
func (a *app) noteRefusal(ctx context.Context, target string, s fence.Stamp, err error) error {
	if isRefusal(err) {
		a.note(ctx, noteTimeout, func(ctx context.Context, c *croft.Client) {
			nameOwners(ctx, c.Store(), err)
			if target != "" { // otherwise it was a raise, not a write
				c.Refused(s, target, err)
			}
		})
	}
	return err
}

// noteLetIn is noteRefusal for a write that would have been refused.
func (a *app) noteLetIn(ctx context.Context, target string, s fence.Stamp, refusal error) {
	if isRefusal(refusal) {
		a.note(ctx, noteTimeout, func(ctx context.Context, c *croft.Client) {
			nameOwners(ctx, c.Store(), refusal)
			c.LetIn(s, target, refusal)
		})
	}
}

// unsureTimeout bounds how long croft tries to note that the store did not
// answer. Perhaps it does by now.
const unsureTimeout = time.Second

// noteUnsure notes that the store did not say who the current owner is.
func (a *app) noteUnsure(ctx context.Context, target string, s fence.Stamp, admitted bool) {
	a.note(ctx, unsureTimeout, func(_ context.Context, c *croft.Client) { c.Unsure(s, target, admitted) })
}

// isRefusal reports whether an error is a refusal by the fence or by the law.
func isRefusal(err error) bool {
	exit := cli.OutcomeOf(err).Exit
	return err != nil && (exit == cli.ExitRefused || exit == cli.ExitNotOwned)
}

// note calls do with a client, so that do can leave a note in the store. It
// does not call do if the store does not answer in time.
func (a *app) note(ctx context.Context, within time.Duration, do func(context.Context, *croft.Client)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	st, err := a.LookUp(ctx)
	if err != nil {
		return
	}
	defer st.Close()
	c := croft.New(st, &croft.Options{Owner: a.Owner, CallTimeout: min(a.Timeout, within)})
	do(ctx, c)
	_ = c.Close()
}
