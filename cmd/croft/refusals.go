package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
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
}

func refusalViewOf(r refusals.Refusal) refusalView {
	return refusalView{cli.When(r.At), "refused", r.Key, r.Owner, r.Act, r.Code, r.Token, r.Newest, r.Target, r.Count}
}

// refusalText describes a refusal, without its owner, time and key. The target
// comes last, because it may be long and terminals cut lines.
func refusalText(r refusals.Refusal) string {
	text := r.Act + ": " + map[string]string{
		"stale": "stale", "collision": "the same token from two grants", "wrong_key": "it belongs to another key",
		"repeated": "late or repeated", "not_owned": "not owned",
	}[r.Code]
	if r.Newest > 0 && r.Newest != r.Token {
		text += fmt.Sprintf(", newest is %d", r.Newest)
	}
	if r.Count > 1 {
		text += fmt.Sprintf(" (%d times)", r.Count)
	}
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
		t.Row(cli.PlainCell(cli.Ago(now, r.At)), cli.PlainCell(cli.Word(r.Key)), cli.PlainCell(whose(r.Owner)),
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
	if exit := cli.OutcomeOf(err).Exit; exit != cli.ExitRefused && exit != cli.ExitNotOwned {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	st, openErr := a.LookUp(ctx)
	if openErr != nil {
		return err
	}
	defer st.Close()
	nameOwners(ctx, st, err)
	if target == "" {
		return err // a raise, not a write
	}
	c := croft.New(st, &croft.Options{Owner: a.Owner, CallTimeout: min(a.Timeout, noteTimeout)})
	c.Refused(s, target, err)
	_ = c.Close()
	return err
}
