package workcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/work"
)

// The bounds of the reasons in an error.
const (
	reasonRules   = 3  // rules that are named
	reasonRead    = 50 // rules that are read of one queue
	reasonColumns = 120
)

// nothingReady is the error of a claim that found nothing. It names the rules
// that may be why, who made them and for what reason. If the ledger does not
// tell them, it leaves them out.
func (a *app) nothingReady(ctx context.Context, l work.Ledger, queues []string) error {
	err := fmt.Errorf("%w in %s", cli.ErrNothingReady, strings.Join(quoted(queues), ", "))
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	var rules []work.Rule
	for _, q := range slices.Compact(slices.Sorted(slices.Values(queues))) {
		for r, err := range l.Rules(ctx, work.RuleQuery{Queue: q, Limit: reasonRead}) {
			if err != nil {
				break
			}
			if r.Restricts() {
				rules = append(rules, r)
			}
		}
	}
	if len(rules) == 0 {
		return err
	}
	counts := map[string]work.QueueBacklog{}
	counter, counted := l.(work.Surveyor)
	if counted {
		backlog, err := counter.Backlog(ctx, work.MaxDelay)
		counted = err == nil
		for _, q := range backlog.Queues {
			counts[q.Queue] = q
		}
	}
	var reasons []string
	for _, r := range rules {
		n := counts[r.Queue]
		if !r.Paused && counted && n.Ready == 0 {
			continue // nothing waits there that the limit could hold back
		}
		reasons = append(reasons, reasonText(r, n.Running))
	}
	if more := len(reasons) - reasonRules; more > 0 {
		reasons = append(reasons[:reasonRules], fmt.Sprintf("%d more rules: see croft work queues", more))
	}
	if len(reasons) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(reasons, "; "))
}

// reasonText says how a rule holds claims back, and who said so. running is how
// many items of the queue run.
func reasonText(r work.Rule, running int64) string {
	how := ": " + ruleText(r)
	switch {
	case r.Paused:
		how = " is paused"
	case r.Partition == "" && r.Running > 0 && running >= int64(r.Running):
		how = fmt.Sprintf(" is full: %d run, and at most %d may", running, r.Running)
	}
	return fmt.Sprintf("%s%s (%s: %s)", ruleName(r), how, cli.Word(r.Actor), cli.Cut(cli.Line(r.Note), reasonColumns))
}
