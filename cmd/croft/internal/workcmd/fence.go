package workcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/work"
)

// actFenceHelp ends the help of every operator's act.
const actFenceHelp = `Croft raises the fence at the guards that the item names ("croft work add
--guard"), so they refuse the old owner's writes from now on. Standard error
says where that worked.

` + cli.RaiseHelp

// patient is a ledger that is asked again if it does not answer.
type patient struct {
	work.Ledger
	app *app
}

func (p patient) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	return p.app.apply(ctx, p.Ledger, requests)
}

// Guard opens guards in the ledger's own place, if it has any.
func (p patient) Guard(ctx context.Context, target string) (guard.Guard, error) {
	return ownGuard(ctx, p.Ledger, target)
}

// ownGuard opens a guard in the ledger's own place.
func ownGuard(ctx context.Context, l work.Ledger, target string) (guard.Guard, error) {
	if host, can := l.(guard.Host); can {
		return host.Guard(ctx, target)
	}
	return nil, guard.ErrElsewhere
}

func (a *app) fenceOptions(allowed guard.Allowed) *work.FenceOptions {
	return &work.FenceOptions{Raise: allowed, CallTimeout: a.Timeout}
}

// act sends operators' acts to the ledger, and raises the fence.
func (a *app) act(
	ctx context.Context, l work.Ledger, requests []work.Request, allowed guard.Allowed,
) []work.Transfer {
	return work.Act(ctx, patient{l, a}, requests, a.fenceOptions(allowed))
}

// actView is the outcome of an operator's act in JSON.
type actView struct {
	answerView
	Stamp  string          `json:"stamp"` // of the burned token; guard raise takes it
	Raised []cli.RaiseView `json:"raised"`
}

// takeoverView is an item that an operator has taken, in JSON.
type takeoverView struct {
	claimView
	Raised []cli.RaiseView `json:"raised"`
}

// printRaised prints on standard error where the fence is up after an act. It
// returns the guards for JSON. alone says that the act is the only one of the
// command.
func (a *app) printRaised(t work.Transfer, alone bool) []cli.RaiseView {
	stamp := t.Item.Stamp()
	switch {
	case len(t.Raised) == 0 && len(t.Item.Guards) > 0:
		fmt.Fprintf(a.Stderr, "croft: fence: nobody has owned %s yet\n", t.Item.ID)
	case len(t.Raised) == 0 && alone:
		fmt.Fprintln(a.Stderr, "croft: fence: none named by the item")
		a.AdviseRaise(stamp)
	}
	return a.PrintRaised(t.Raised, stamp)
}

// printTransfers prints the outcomes of acts, as printAnswers does. If the
// fence is not up after one of them, the exit code is 1.
func (a *app) printTransfers(transfers []work.Transfer, text func(work.Answer) string) error {
	var failed error
	unfenced := false
	for _, t := range transfers {
		if t.Err != nil && !errors.Is(t.Err, work.ErrUnfenced) {
			if failed != nil {
				a.Fail(failed)
			}
			failed = t.Err
			continue
		}
		unfenced = unfenced || t.Err != nil
		raised := a.printRaised(t, len(transfers) == 1)
		if a.JSON {
			a.Print(actView{answerViewOf(t.Answer), t.Item.Stamp().String(), raised})
		} else {
			a.Confirm("%s", text(t.Answer))
		}
	}
	if failed == nil && unfenced { // printRaised has said where and why
		return cli.ExitError(cli.ExitFailed)
	}
	return failed
}

// fenced raises the fence at the guards of claimed items. It gives back those
// whose fence is not up, and returns the others, and the error about the last
// one given back. It prints the errors before that.
func (a *app) fenced(
	ctx context.Context, l work.Ledger, items []work.Item, claim work.Claim, allowed guard.Allowed,
) (begun []work.Item, failed error) {
	var back []work.Request
	for i, err := range work.Fence(ctx, patient{l, a}, items, claim.Secret, a.fenceOptions(allowed)) {
		it := items[i]
		if err == nil {
			begun = append(begun, it)
			continue
		}
		if failed != nil {
			a.Fail(failed)
		}
		failed = fmt.Errorf("item %s is given back: %w", it.ID, err)
		back = append(back, work.Request{
			Verb: work.Release, ID: it.ID, Token: it.Record.Token, Secret: claim.Secret,
			Delay: work.UnfencedDelay, Error: excerpt.Of(err.Error(), work.MaxError),
		})
	}
	if len(back) > 0 {
		// Without an answer the item lapses. The error about the guard matters
		// more.
		a.apply(context.WithoutCancel(ctx), l, back)
	}
	return begun, failed
}
