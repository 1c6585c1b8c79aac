package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store/refusals"
)

// refusalView is a refusal in JSON.
type refusalView struct {
	Time   when        `json:"time"`
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
	return refusalView{when(r.At), "refused", r.Key, r.Owner, r.Act, r.Code, r.Token, r.Newest, r.Target, r.Count}
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
		text += ", at " + word(r.Target)
	}
	return text
}

// whose returns the owner, or a question mark if it is not known.
func whose(owner string) string {
	if owner == "" {
		return "?"
	}
	return word(owner)
}

// listRefusals prints the refusals that the store remembers, the newest last.
func (a *app) listRefusals(all []refusals.Refusal, now time.Time, prefix string) {
	if a.json {
		for _, r := range all {
			a.print(refusalViewOf(r))
		}
		return
	}
	if len(all) == 0 {
		about := which(prefix, "")
		if about != "" {
			about = " of" + about
		}
		fmt.Fprintf(a.stderr, "croft: no refusals%s are remembered\n", about)
		return
	}
	t := a.table("WHEN", "KEY", "OWNER", "TOKEN", "REFUSED")
	for _, r := range all {
		t.row(plainCell(ago(now, r.At)), plainCell(word(r.Key)), plainCell(whose(r.Owner)),
			plainCell(strconv.FormatInt(int64(r.Token), 10)), plainCell(refusalText(r)))
	}
	t.flush()
}

// noteTimeout bounds how long a refused write takes to look up the owners and
// to leave a note in the store.
const noteTimeout = 2 * time.Second

// noteRefusal leaves a note of a refused write in the store, for operators. It
// adds the owners' names to the refusal. It does both only if the store answers
// within noteTimeout, and always returns err.
func (a *app) noteRefusal(ctx context.Context, target string, s fence.Stamp, err error) error {
	if exit := outcomeOf(err).exit; exit != exitRefused && exit != exitNotOwned {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	st, openErr := a.lookUp(ctx)
	if openErr != nil {
		return err
	}
	defer st.Close()
	nameOwners(ctx, st, err)
	if target == "" {
		return err // a raise, not a write
	}
	c := croft.New(st, &croft.Options{Owner: a.owner, CallTimeout: min(a.timeout, noteTimeout)})
	c.Refused(s, target, err)
	_ = c.Close()
	return err
}
