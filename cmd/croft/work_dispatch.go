package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

func (a *app) workDispatchCommand() *cobra.Command {
	var f destinationFlags
	var o steward.DispatchOptions
	untilEmpty, passStore := false, false
	c := &cobra.Command{
		Use:   "dispatch",
		Short: "Deliver effects to webhooks and commands",
		Long: `Deliver effects to their destinations until it is told to stop. Start as many as you like: one works at a time, under a lease, and the ledger checks
its stamp with every effect, so one that was presumed dead settles nothing. Dispatchers with other destinations need another --key.

A webhook gets the body by POST, with the effect's identity as Idempotency-Key, the same in every attempt, and a signature over the URL, the
identity, the time and the body; docs/webhooks.md says how a receiver checks it. 2xx is delivered; 408, 425, 429, 503 and no connection are tried
again; other 3xx and 4xx are given up; after anything else nobody can say, and it is sent again unless it may be sent only once.

Each receiver needs a secret of its own, of at least 32 bytes: "openssl rand -hex 32" makes one. It is read from --secret-file, or for a single webhook
from CROFT_WEBHOOK_SECRET, one per line while it is being replaced. Commands do not find it in their environment.

A command, run by the shell, finds the body on standard input, and CROFT_IDEMPOTENCY_KEY, CROFT_ITEM, CROFT_QUEUE, CROFT_EFFECT, CROFT_TOKEN, CROFT_ATTEMPT and CROFT_STORE in its
environment; the last without the ledger's password, as for "croft work run". It finds no lease. Exit code 0 is delivered, 75 try again, 65 give up; after any other nobody can say. On Linux nothing that it started outlives it, or --delivery-timeout.

--destinations names a file with all of them; paths in it are relative to it:
  {"billing": {"url": "https://billing.example/hook", "secret_file": "billing.secret", "header": {"X-Team": "shop"}},
   "mail": {"command": ["./send-mail", "--quiet"]}}`,
		Example: `  croft work dispatch --webhook published=https://example.org/hook --secret-file hook.secret
  croft work dispatch --webhook a=https://a.example/ --secret-file a=a.secret --webhook b=https://b.example/ --secret-file b=b.secret
  croft work dispatch --exec mail='sendmail -t' --until-empty
  croft work dispatch --destinations destinations.json`,
		Args: takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			to, err := f.open()
			if err != nil {
				return err
			}
			if o.Slots < 1 || o.Slots > work.MaxClaim || o.Deliveries < 1 {
				return invalid("--slots and --deliveries: they must be at least 1, and slots at most %d", work.MaxClaim)
			}
			return a.workDispatch(c.Context(), to, o, untilEmpty, passStore)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.webhooks, "webhook", nil, "deliver effects for NAME by POST, as `NAME=URL`; may be given again")
	flags.StringArrayVar(&f.commands, "exec", nil, "deliver effects for NAME by a shell command, as `NAME=COMMAND`; may be given again")
	flags.StringVar(&f.file, "destinations", "", "read destinations from this JSON `file`")
	flags.StringArrayVar(&f.secretFiles, "secret-file", nil, "a `file` with the secret that signs the requests of --webhook, as FILE or NAME=FILE; may be given again (default $"+envWebhookSecret+")")
	flags.BoolVar(&f.unsigned, "unsigned", false, "send the requests of --webhook without a signature")
	flags.IntVar(&o.Slots, "slots", 16, "how many are on their way at once")
	flags.IntVar(&o.Deliveries, "deliveries", steward.DefaultDeliveries, "how often an effect is delivered before it is given up")
	o.Timeout = 30 * time.Second
	flags.Var(&duration{value: &o.Timeout, least: 100 * time.Millisecond, most: time.Hour, examples: "30s or 5m"}, "delivery-timeout", "how long one delivery may take")
	o.TTL = 30 * time.Second
	ttlFlag(flags, &o.TTL, 30*time.Second, "how long others wait if this dispatcher dies")
	flags.StringVar(&o.Key, "key", "work/dispatcher", "the key of the dispatcher's lease")
	passStoreFlag(flags, &passStore)
	flags.BoolVar(&untilEmpty, "until-empty", false, "end when nothing is due or on its way for these destinations; what waits for a later attempt is left")
	return c
}

// deliveryView is, in JSON, what became of one delivery.
type deliveryView struct {
	Effect  string           `json:"effect"`
	To      string           `json:"to"`
	State   work.EffectState `json:"state"`
	Attempt int              `json:"attempt"`
	Took    string           `json:"took"`
	Error   string           `json:"error,omitempty"`
	Refused string           `json:"refused,omitempty"`
}

func (a *app) workDispatch(ctx context.Context, to map[string]steward.Deliverer, o steward.DispatchOptions, untilEmpty, passStore bool) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	name, _, err := a.ledgerName()
	if err != nil {
		return err
	}
	for at, d := range to {
		if c, ok := d.(steward.Command); ok {
			to[at] = effectCommand{c, name, passStore}
		}
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	client, end, err := a.ledgerClient(ctx)
	if err != nil {
		return err
	}
	defer end()
	log := &idle{app: a}
	o.CallTimeout, o.Observe, o.Logger = a.timeout, a.printDelivery, slog.New(log)
	run, done := context.WithCancelCause(ctx)
	defer done(nil)
	if untilEmpty {
		log.stuck = done
		go func() { done(a.awaitDelivered(run, l, slices.Collect(maps.Keys(to)))) }()
	}
	if err := steward.RunDispatcher(run, client, l, to, &o); err != nil {
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
		return a.redact(err.Error())
	}
	if a.json {
		a.print(deliveryView{d.Effect.EffectID.String(), d.Effect.To, d.State, d.Effect.Attempts, d.Took.Round(time.Microsecond).String(), text(d.Err), text(d.Refused)})
		return
	}
	said := fmt.Sprintf("%s to %s: %s, delivery %d", d.Effect.EffectID, word(d.Effect.To), d.State, d.Effect.Attempts)
	if err := errors.Join(d.Err, d.Refused); err != nil {
		said += ": " + line(text(err))
	}
	fmt.Fprintln(a.stdout, said)
}

// idle is a log of why a dispatcher delivers nothing, on standard error. It says
// the same once an hour. Deliveries are printed by printDelivery.
type idle struct {
	*app
	last  string
	at    time.Time   // when it said that
	stuck func(error) // called if nothing will ever be delivered; nil to wait even then
}

func (i *idle) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (i *idle) WithAttrs([]slog.Attr) slog.Handler               { return i }
func (i *idle) WithGroup(string) slog.Handler                    { return i }

func (i *idle) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(at slog.Attr) bool {
		if err, _ := at.Value.Any().(error); i.stuck != nil && errors.Is(err, fence.ErrAhead) {
			i.stuck(err)
			return true
		}
		if text := line(i.redact(at.Value.String())); r.Message != "delivery" && (text != i.last || r.Time.Sub(i.at) >= time.Hour) {
			i.last, i.at = text, r.Time
			fmt.Fprintf(i.stderr, "croft: nothing is delivered at present: %s\n", text)
		}
		return true
	})
	return nil
}

// awaitDelivered returns when no effect for these destinations is due. What waits for a later attempt is left.
func (a *app) awaitDelivered(ctx context.Context, l work.Ledger, to []string) error {
	for silent := (time.Time{}); ; {
		open, err := a.deliverable(ctx, l, to)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if silent = (time.Time{}); !open {
				return nil
			}
		case silent.IsZero():
			silent = time.Now()
		case time.Since(silent) > 2*a.timeout:
			return err
		}
		if !rest(ctx, 100*time.Millisecond) {
			return nil
		}
	}
}

// deliverable reports whether an effect is due. What is on its way the dispatcher waits for by itself.
func (a *app) deliverable(ctx context.Context, l work.Ledger, to []string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
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
