package workcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/observe"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// workRunOptions are the flags of work run.
type workRunOptions struct {
	worker      work.Options
	grace       time.Duration
	once        bool
	untilEmpty  bool
	untilEOF    bool
	requireDone bool
	noReconcile bool
	passStore   bool
	raise       []string
	metrics     string
}

// With these exit codes a worker's command says more than that it failed. They
// are those of sysexits. Commands of the dispatcher use them, too.
const (
	exitCommandFinal    = 65 // EX_DATAERR: trying again would not help
	exitCommandGiveBack = 75 // EX_TEMPFAIL: not now, and the attempt does not count
)

// giveBackDelay is how long an item waits after its command said "not now".
const giveBackDelay = 10 * time.Second

func (a *app) workRunCommand() *cobra.Command {
	var o workRunOptions
	c := &cobra.Command{
		Use:   "run QUEUE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Work on a queue: run a command for every item",
		Long: `Claim items and run a command for each, in any language. The command reads the
payload on standard input and prints the result.

Exit code 0 completes the item, with the result and the effects, in one step.
Any other exit code fails the attempt, and the last lines of standard error are
the reason. The item is tried again after a while, until its attempts are used
up. Two exit codes say more. 65: trying again would not help, and the item is
dead. 75: not now. The item is given back for 10s, and the attempt does not
count.

The command finds in its environment:
  CROFT_ITEM, CROFT_QUEUE         the item's id and queue
  CROFT_ATTEMPT, CROFT_LIMIT      which attempt it is, of how many
  CROFT_GENERATION                how often an operator had all of it done again
  CROFT_CHECKPOINT                a file with the checkpoint of the attempt
                                  before; empty if there is none
  CROFT_EFFECTS                   a file for effects, one JSON object per line:
                                  "croft work emit" writes it, and
                                  "croft work complete --help" explains it
  CROFT_KEY, CROFT_TOKEN          queue/id, and the token of this attempt
  CROFT_STAMP                     the stamp for writes to guarded resources
  CROFT_LEASE, CROFT_STORE        for "croft work report", "checkpoint" and the
                                  others, which need no flags inside
  CROFT_CONFIRM                   stderr: croft confirms there, because standard
                                  output is the result
  CROFT_DONE                      with --require-done, the file that takes the
                                  token when the work is done

A program can end with exit code 0 before its work is done: a library calls
exit, or an event loop runs dry. With --require-done, exit code 0 completes the
item only if the command wrote its token to the file that CROFT_DONE names, as
with: echo "$CROFT_TOKEN" >"$CROFT_DONE". Otherwise the attempt has failed. Let
the command write it last, after the result.

CROFT_STORE has the ledger's URL without its password. A croft that the command
calls finds the password in a file that only you can read. A command that runs
as another user, or that opens the ledger by itself, may need --pass-store.

Croft keeps the item alive while the command runs. With --stall-after it does so
only while the command advances, which "croft work report" and "checkpoint"
tell. If the command tells nothing for that long, croft no longer keeps the
item. At its deadline croft kills the command, and the attempt has failed. The
item can also be lost because it was reassigned or cancelled, or because croft
cannot reach the ledger in time. Then croft kills the command and all it
started, and nothing of the attempt counts. If croft dies, all of it dies too,
and the reconciler gives the item to another worker. When a command ends, croft
kills what it left running.

TERM or INT drains: croft claims nothing more. Commands may finish for --drain,
then get TERM, and KILL after --grace. Croft gives back the items that they have
not finished. A second signal ends croft at once. With --until-eof the end of
standard input drains, too: let the program that starts croft hold a pipe to it.
The pipe ends with that program, even if it is killed. A file and /dev/null have
no such end, and are refused.

Before a command begins, croft raises the fence at the guards that its item
names ("croft work add --guard"). If it cannot, it gives the item back for 30s
and says why. Somebody else chose those targets. Croft opens them only in the
ledger's own place (the same database or file; with a file that only you can
write to, also other files), and in the places that you name with --raise or in
CROFT_RAISE. Where it may open them, it also makes a missing mark. So name only
places in which everybody who adds items may choose targets.

This worker also looks after items that others have lost, as "croft work
reconcile" does, unless --no-reconcile is given.

If the ledger cannot be reached, croft asks on. With --once or --until-empty, and
without an item, it ends with exit code 14 instead if asking again cannot help.

With --json croft prints every event as one object per line. Exit codes with
--once: 0 done, 1 the attempt failed, 11 nothing is ready, 12 the item was lost,
13 its completion was refused.`,
		Example: `  croft work run thumbnails -- ./make-thumbnail
  croft work run crawl --slots 8 --ttl 5m -- python3 crawl.py
  croft work run train --stall-after 10m -- ./train      # which calls "croft work report" as it goes
  croft work run nightly --until-empty -- ./job && echo all done
  croft work run mails -- sh -c 'jq -r .to | xargs send-mail && croft work emit mailed'
  croft work run tax --require-done -- sh -c './tax-report && echo "$CROFT_TOKEN" >"$CROFT_DONE"'`,
		Args:              cli.TakesCommand("QUEUE"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(args[0]); err != nil {
				return err
			}
			var err error
			if o.worker.Raise, err = a.AllowRaise(o.raise); err != nil {
				return err
			}
			return a.workRun(c.Context(), args[0], args[1:], o)
		},
	}
	flags := c.Flags()
	flags.IntVar(&o.worker.Slots, "slots", 1, "how many items to work on at once")
	cli.TTLFlag(flags, &o.worker.TTL, work.DefaultTTL,
		"how long an item is kept if this machine dies; heartbeats go out at a third of it")
	o.worker.Poll = time.Second
	flags.Var(&cli.Duration{Value: &o.worker.Poll, Least: 10 * time.Millisecond, Most: time.Hour, Examples: "1s or 1m"},
		"poll", "the longest wait between two looks at an empty queue")
	o.worker.Drain = 10 * time.Second
	flags.Var(&cli.Duration{Value: &o.worker.Drain, Most: 365 * 24 * time.Hour, Examples: "10s or 5m"}, "drain",
		"how long commands may go on after TERM or INT")
	o.grace = 5 * time.Second
	flags.Var(&cli.Duration{Value: &o.grace, Most: time.Hour, Examples: "5s or 1m"}, "grace",
		"time between TERM and KILL when the drain is over")
	cli.SpanFlag(flags, &o.worker.StallAfter, "stall-after",
		"stop a command that has called neither \"croft work report\" nor \"checkpoint\" for this long")
	flags.BoolVar(&o.once, "once", false, "work on one item, then end")
	flags.BoolVar(&o.untilEmpty, "until-empty", false,
		"end when the queue holds nothing that waits or runs, here or elsewhere")
	flags.BoolVar(&o.untilEOF, "until-eof", false, "drain when standard input ends, as when its writer is killed")
	flags.BoolVar(&o.requireDone, "require-done", false,
		"exit code 0 counts only if the command wrote its token to the file that CROFT_DONE names")
	flags.BoolVar(&o.noReconcile, "no-reconcile", false, "do not look after items that others have lost")
	cli.PassStoreFlag(flags, &o.passStore)
	cli.RaiseFlag(c, &o.raise)
	metricsFlag(c, &o.metrics)
	return c
}

func (o *workRunOptions) check(queue string) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	if o.worker.Slots < 1 || o.worker.Slots > work.MaxClaim {
		return cli.Invalid("--slots %d: it must be between 1 and %d", o.worker.Slots, work.MaxClaim)
	}
	if o.once && o.untilEmpty {
		return &cli.UsageError{Message: "--once and --until-empty do not go together", Hint: "leave one of them out"}
	}
	if o.once {
		o.worker.Slots = 1
	}
	// Zero would be the worker's default. A killed command needs a moment to
	// end.
	o.worker.Drain = max(o.worker.Drain, time.Millisecond)
	o.worker.Grace = o.grace + cli.KillTimeout
	return nil
}

// workRun works on a queue until it is interrupted, or as long as --once and
// --until-empty say.
func (a *app) workRun(ctx context.Context, queue string, command []string, o workRunOptions) error {
	asked, stop := cli.Interruptible(ctx)
	defer stop()
	if o.untilEOF && endless(a.Stdin) {
		return cli.Invalid("--until-eof: standard input is a file or /dev/null, which no program holds open; " +
			"start croft with a pipe, or leave --until-eof out")
	}
	name, _, err := a.LedgerName()
	if err != nil {
		return err
	}
	l, err := a.ledger(asked)
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := a.startMetrics(o.metrics, observe.LedgerOptions{
		Queues: []string{queue}, StallAfter: o.worker.StallAfter,
	})
	if err != nil {
		return err
	}
	defer m.end()
	l = m.counted(l)

	run, end := context.WithCancel(asked)
	defer end()
	w := newQueueWorker(a, name, queue, command, o, end)
	w.tracked = &trackedLedger{Ledger: l, worker: w, held: map[work.ID]*heldItem{}}
	if !o.noReconcile {
		done, err := w.reconcileBeside(run, l, m)
		if err != nil {
			return err
		}
		defer done()
		defer end()
	}
	if o.untilEOF { // not before: a drain ends with 0, but an interrupt at the start with 130
		go untilEOF(a.Stdin, end)
	}
	defer w.console.watch(run, l, w)()

	o.worker.Owner, o.worker.CallTimeout, o.worker.Observe = a.Actor(), a.Timeout, m.worker(w.observe)
	err = work.Run(run, w.tracked, map[string]work.Handler{queue: w.handle}, &o.worker)
	w.console.finish()
	return w.verdict(err)
}

// endless reports whether the end of an input says nothing about a writer: that
// of a file, and of /dev/null, which systemd, cron and background jobs have. A
// closed input is /dev/null, too: Go opens it there.
func endless(input io.Reader) bool {
	f, ok := input.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return info.Mode().IsRegular() || err == nil && os.SameFile(info, null)
}

// untilEOF calls end when the input ends.
func untilEOF(input io.Reader, end func()) {
	_, _ = io.Copy(io.Discard, input)
	end()
}

// reconcileBeside looks after lost items while the worker works. It prunes
// nothing, because retention is for "croft work reconcile" to decide.
func (w *queueWorker) reconcileBeside(ctx context.Context, l work.Ledger, m metrics) (done func(), err error) {
	client, end, err := w.app.ledgerClient(ctx, m.client())
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = steward.RunReconciler(ctx, client, l, &steward.ReconcileOptions{
			NoPrune: true, Owner: w.app.Owner, Raise: w.opts.worker.Raise,
			Passed: func(_ steward.Report, err error) {
				if errors.Is(err, work.ErrUnfenced) {
					w.console.say("croft: items were requeued: " + w.app.Redact(err.Error()))
				}
			},
		})
	}()
	return func() {
		<-over
		end()
	}, nil
}

// verdict returns the outcome of the whole run.
func (w *queueWorker) verdict(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	if err != nil {
		return err
	}
	if !w.app.JSON && !w.opts.once {
		fmt.Fprintf(w.app.Stderr, "croft: %d done, %d failed, %d given back, %d lost\n", w.done, w.failed, w.released,
			w.lost)
	}
	if !w.opts.once {
		return nil
	}
	switch {
	case w.refused > 0:
		return cli.ExitError(cli.ExitRefused)
	case w.lost > 0:
		return cli.ExitError(cli.ExitNotOwned)
	case w.failed+w.released > 0:
		return cli.ExitError(cli.ExitFailed)
	case w.done == 0 && w.started == 0 && w.empty:
		return fmt.Errorf("%w in %s", cli.ErrNothingReady, cli.Word(w.queue))
	}
	return nil
}

// trackedLedger is the ledger as the worker uses it. It notes until when each
// command may run, and ends the run when there is nothing left to do.
type trackedLedger struct {
	work.Ledger
	worker *queueWorker
	held   map[work.ID]*heldItem // guarded by worker.mu
}

// Wake passes on the ledger's hints, if it has any.
func (m *trackedLedger) Wake(ctx context.Context, w work.Wanted) (<-chan struct{}, error) {
	if waker, can := m.Ledger.(work.Waker); can {
		return waker.Wake(ctx, w)
	}
	return nil, errors.ErrUnsupported
}

// Guard opens guards in the ledger's own place, if it has any.
func (m *trackedLedger) Guard(ctx context.Context, target string) (guard.Guard, error) {
	return ownGuard(ctx, m.Ledger, target)
}

// Claim claims items. With --once it claims nothing after the first item. It
// ends the run when nothing is left.
func (m *trackedLedger) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	w := m.worker
	if w.opts.once && w.hasBegun() {
		return nil, nil
	}
	sent := monotonic.Now()
	items, err := m.Ledger.Claim(ctx, c)
	if err != nil {
		if (w.opts.once || w.opts.untilEmpty) && store.IsFault(err) && !c.Again && !w.hasBegun() {
			w.endBroken(err) // nothing was taken, and asking again does not help
		}
		return items, err
	}
	w.claimed(items, sent)
	if len(items) > 0 {
		return items, nil
	}
	switch {
	case w.opts.once:
		w.endEmpty()
	case w.opts.untilEmpty:
		live, err := liveItems(ctx, m.Ledger, w.queue)
		if err == nil && !live {
			w.end()
		}
	}
	return items, nil
}

// liveItems reports whether the queue has items that are not finished.
func liveItems(ctx context.Context, l work.Ledger, queue string) (bool, error) {
	live := work.Query{Queue: queue, States: []work.State{work.Waiting, work.Running}, Limit: 1}
	for _, err := range l.List(ctx, live) {
		if err != nil {
			return false, store.Unknown(err)
		}
		return true, nil
	}
	return false, nil
}

// Apply sends requests. A confirmed heartbeat lets the item's command run on.
func (m *trackedLedger) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	sent := monotonic.Now()
	answers := m.Ledger.Apply(ctx, requests)
	for i, answer := range answers {
		if i < len(requests) && requests[i].Verb == work.Heartbeat && answer.Err == nil {
			m.worker.confirmed(requests[i].ID, sent)
		}
	}
	return answers
}

// scratch makes a folder for the files of one command.
func scratch() (string, error) { return os.MkdirTemp("", "croft-work-") }
