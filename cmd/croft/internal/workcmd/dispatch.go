package workcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/observe"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

func (a *app) workDispatchCommand() *cobra.Command {
	var f destinationFlags
	var o steward.DispatchOptions
	untilEmpty, passStore, metrics := false, false, ""
	c := &cobra.Command{
		Use:   "dispatch",
		Short: "Deliver effects to webhooks and commands",
		Long: `Deliver effects to their destinations, until interrupted. Start as many
dispatchers as you like: they share the work, and up to --together of them work
at a time. Each effect is leased to the one that took it. The ledger checks that
with every settlement, so a dispatcher that was presumed dead settles nothing.

Destinations do not wait for each other. One that fails five times in a row is
paused, for 1s at first and up to 1m, and then gets one delivery as a trial. A
receiver that answers with Retry-After is paused for that long. With --ordered a
destination gets its effects in the order of their completions, one at a time.
There an effect that waits for another attempt, or whose fate is unknown, holds
up those after it.

A webhook gets the body by POST. The effect's identity is its Idempotency-Key,
the same in every attempt. A signature covers the URL, the identity, the time
and the body; docs/webhooks.md says how a receiver checks it. 2xx means
delivered. After 408, 425, 429, 503 and without a connection croft tries again.
After other 3xx and 4xx croft gives up. After anything else nobody knows whether
it arrived: croft sends it again, unless it may be sent only once.

Each receiver needs a secret of its own, of at least 32 bytes: "openssl rand
-hex 32" makes one. Croft reads it from --secret-file, or for a single webhook
from CROFT_WEBHOOK_SECRET. While a secret is being replaced, give both, one per
line. Commands do not find the secret in their environment.

The shell runs a command with the body on standard input. The command finds
CROFT_IDEMPOTENCY_KEY, CROFT_ITEM, CROFT_QUEUE, CROFT_EFFECT, CROFT_TOKEN,
CROFT_ATTEMPT and CROFT_STORE in its environment. CROFT_STORE is without the
ledger's password, as for "croft work run". The command finds no lease. Exit
code 0 means delivered, 75 try again, 65 give up. After any other nobody knows
whether it arrived. On Linux no process of the command outlives it, or
--delivery-timeout.

--destinations names a JSON file with all destinations. Paths in it are relative
to the file:
  {"billing": {"url": "https://billing.example/hook", "secret_file": "billing.secret", "header": {"X-Team": "shop"}},
   "mail": {"command": ["./send-mail", "--quiet"]}}`,
		Example: `  croft work dispatch --webhook published=https://example.org/hook --secret-file hook.secret
  croft work dispatch --webhook a=https://a.example/ --secret-file a=a.secret \
    --webhook b=https://b.example/ --secret-file b=b.secret
  croft work dispatch --exec mail='sendmail -t' --until-empty
  croft work dispatch --exec journal='./append' --ordered journal
  croft work dispatch --destinations destinations.json`,
		Args: cli.Takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			to, err := f.open()
			if err != nil {
				return err
			}
			if o.Slots < 1 || o.Slots > work.MaxClaim || o.Deliveries < 1 {
				return cli.Invalid("--slots and --deliveries: they must be at least 1, and slots at most %d",
					work.MaxClaim)
			}
			if o.Together < 1 || o.Together > 100 {
				return cli.Invalid("--together %d: it must be between 1 and 100", o.Together)
			}
			for _, name := range o.Ordered {
				if to[name] == nil {
					return cli.Invalid("--ordered %s: there is no such destination; name one of --webhook, --exec or "+
						"--destinations", cli.Word(name))
				}
			}
			return a.workDispatch(c.Context(), to, o, untilEmpty, passStore, metrics)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.webhooks, "webhook", nil,
		"deliver effects for NAME by POST, as `NAME=URL`; may be given again")
	flags.StringArrayVar(&f.commands, "exec", nil,
		"deliver effects for NAME by a shell command, as `NAME=COMMAND`; may be given again")
	flags.StringVar(&f.file, "destinations", "", "read destinations from this JSON `file`")
	flags.StringArrayVar(&f.secretFiles, "secret-file", nil, "a `file` with the secret that signs the requests of "+
		"--webhook, as FILE or NAME=FILE; may be given again (default $"+cli.EnvWebhookSecret+")")
	flags.BoolVar(&f.unsigned, "unsigned", false, "send the requests of --webhook without a signature")
	flags.IntVar(&o.Slots, "slots", 16, "how many effects are under way at once, for each destination")
	flags.StringArrayVar(&o.Ordered, "ordered", nil,
		"deliver the effects for `NAME` in order, one at a time; may be given again")
	flags.IntVar(&o.Together, "together", 16, "how many dispatchers of this --key work at a time; others wait")
	flags.IntVar(&o.Deliveries, "deliveries", steward.DefaultDeliveries,
		"how often an effect is delivered before it is given up")
	o.Timeout = 30 * time.Second
	flags.Var(&cli.Duration{Value: &o.Timeout, Least: 100 * time.Millisecond, Most: time.Hour, Examples: "30s or 5m"},
		"delivery-timeout", "how long one delivery may take")
	o.TTL = 30 * time.Second
	cli.TTLFlag(flags, &o.TTL, 30*time.Second, "how long others wait if this dispatcher dies")
	flags.StringVar(&o.Key, "key", "work/dispatcher",
		"the key of the dispatcher's lease; the second one's is KEY/2, and so on")
	cli.PassStoreFlag(flags, &passStore)
	flags.BoolVar(&untilEmpty, "until-empty", false,
		"end when nothing is due or under way for these destinations; effects that wait for a later attempt stay")
	metricsFlag(c, &metrics)
	return c
}

// deliveryView is one delivery in JSON.
type deliveryView struct {
	Effect  string           `json:"effect"`
	To      string           `json:"to"`
	State   work.EffectState `json:"state"`
	Attempt int              `json:"attempt"`
	Took    string           `json:"took"`
	Error   string           `json:"error,omitempty"`
	Refused string           `json:"refused,omitempty"`
}

func (a *app) workDispatch(
	ctx context.Context, to map[string]steward.Deliverer, o steward.DispatchOptions, untilEmpty, passStore bool,
	where string,
) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	name, _, err := a.LedgerName()
	if err != nil {
		return err
	}
	for at, d := range to {
		if c, ok := d.(steward.Command); ok {
			to[at] = effectCommand{c, name, passStore}
		}
	}
	names := slices.Sorted(maps.Keys(to))
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := a.startMetrics(where, observe.LedgerOptions{Destinations: names})
	if err != nil {
		return err
	}
	defer m.end()
	taken := newUnderWay(m.counted(l))
	client, end, err := a.ledgerClient(ctx, m.client())
	if err != nil {
		return err
	}
	defer end()
	log := &dispatchLog{app: a}
	o.Paused = m.paused(func(p steward.Pause) {
		fmt.Fprintf(a.Stderr, "croft: deliveries to %s pause for %s: %s\n", cli.Word(p.To), cli.Short(p.For),
			cli.Line(a.Redact(p.Err.Error())))
	})
	o.CallTimeout, o.Observe, o.Logger = a.Timeout, m.delivery(a.printDelivery), slog.New(log)
	run, done := context.WithCancelCause(ctx)
	defer done(nil)
	if untilEmpty {
		log.stuck = done
		go func() { done(a.awaitDelivered(run, taken, names)) }()
	}
	if err := steward.RunDispatcher(run, client, taken, to, &o); err != nil {
		return err
	}
	if err := context.Cause(run); ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (a *app) printDelivery(d steward.Delivery) {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return a.Redact(err.Error())
	}
	if a.JSON {
		a.Print(deliveryView{
			d.Effect.EffectID.String(), d.Effect.To, d.State, d.Effect.Attempts,
			d.Took.Round(time.Microsecond).String(), text(d.Err), text(d.Refused),
		})
		return
	}
	said := fmt.Sprintf("%s to %s: %s, delivery %d", d.Effect.EffectID, cli.Word(d.Effect.To), d.State,
		d.Effect.Attempts)
	if err := errors.Join(d.Err, d.Refused); err != nil {
		said += ": " + cli.Line(text(err))
	}
	fmt.Fprintln(a.Stdout, said)
}

// dispatchLog is the dispatcher's log. It prints on standard error why nothing
// is delivered, and repeats the same reason once an hour. printDelivery prints
// deliveries.
type dispatchLog struct {
	*app
	mu    sync.Mutex // several destinations log at once
	last  string
	at    time.Time   // when last was printed
	stuck func(error) // called if nothing can ever be delivered; nil without --until-empty
}

func (i *dispatchLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}
func (i *dispatchLog) WithAttrs([]slog.Attr) slog.Handler { return i }
func (i *dispatchLog) WithGroup(string) slog.Handler      { return i }

func (i *dispatchLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "delivery" || r.Message == "destination_paused" { // both are printed elsewhere
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	r.Attrs(func(at slog.Attr) bool {
		if err, _ := at.Value.Any().(error); i.stuck != nil && errors.Is(err, fence.ErrAhead) {
			i.stuck(err)
			return true
		}
		if text := cli.Line(i.Redact(at.Value.String())); text != i.last || r.Time.Sub(i.at) >= time.Hour {
			i.last, i.at = text, r.Time
			fmt.Fprintf(i.Stderr, "croft: nothing is delivered at present: %s\n", text)
		}
		return true
	})
	return nil
}

// awaitDelivered returns when no effect for these destinations is due, and none
// is under way. Effects that wait for a later attempt do not count.
func (a *app) awaitDelivered(ctx context.Context, l *underWay, to []string) error {
	for silent := (time.Time{}); ; {
		open, err := a.deliverable(ctx, l, to)
		open = open || l.any()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if silent = (time.Time{}); !open {
				return nil
			}
		case silent.IsZero():
			silent = time.Now()
		case time.Since(silent) > 2*a.Timeout:
			return err
		}
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil
		}
	}
}

// deliverable reports whether an effect is due that nobody has taken.
func (a *app) deliverable(ctx context.Context, l work.Ledger, to []string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	now, err := l.Now(ctx)
	if err != nil {
		return false, err
	}
	for e, err := range l.Effects(ctx, work.EffectQuery{States: []work.EffectState{work.Pending}}) {
		if err != nil {
			return false, err
		}
		if slices.Contains(to, e.To) && !e.Ready.After(now) {
			return true, nil
		}
	}
	return false, nil
}
