package workcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// effectView is an effect in JSON. The names are those of work.Effect.
// Receivers get the field effect as Idempotency-Key.
type effectView struct {
	Effect     string           `json:"effect"`
	Item       work.ID          `json:"item"`
	Name       string           `json:"name"`
	Generation int              `json:"generation"`
	Queue      string           `json:"queue"`
	To         string           `json:"to"`
	Body       []byte           `json:"body"`
	AtMostOnce bool             `json:"at_most_once"`
	Token      fence.Token      `json:"token"`
	Grant      fence.Grant      `json:"grant"`
	Owner      string           `json:"owner"`
	State      work.EffectState `json:"state"`
	Attempts   int              `json:"attempts"`
	Ready      cli.When         `json:"ready"`
	Sender     fence.Token      `json:"sender"`
	Created    cli.When         `json:"created"`
	Settled    cli.When         `json:"settled"`
	Error      string           `json:"error"`
	Actor      string           `json:"actor"`
	Note       string           `json:"note"`
}

func effectViewOf(e work.Effect) effectView {
	return effectView{
		e.EffectID.String(), e.Item, e.Name, e.Generation, e.Queue, e.To, e.Body, e.AtMostOnce, e.Token, e.Grant,
		e.Owner, e.State, e.Attempts, cli.When(e.Ready), e.Sender,
		cli.When(e.Created), cli.When(e.Settled), e.Error, e.Actor, e.Note,
	}
}

func (a *app) workEffectsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "effects ls|settle",
		Short: "Look at effects, or settle one by hand",
		Long: `Effects are what completions set off. They are rows of an outbox, written in one
step with the completion. "croft work dispatch" delivers them.

  ls      lists them: pending, sent, failed (given up), or unknown (under way,
          or nobody knows whether it arrived)
  settle  records by hand what became of an effect`,
		Example: `  croft work effects ls --state unknown,failed
  croft work effects settle 0198c0de00007000800000000000cafe:0:charge --as sent --note "the bank has it"`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing argument: ls or settle")
			}
			return errors.New(cli.DidYouMean(fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()),
				c.SuggestionsFor(args[0])))
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(a.workEffectsLsCommand(), a.workEffectsSettleCommand())
	return c
}

func effectStates() []string {
	words := make([]string, len(work.EffectStates))
	for i, s := range work.EffectStates {
		words[i] = string(s)
	}
	return words
}

func (a *app) workEffectsLsCommand() *cobra.Command {
	var states []string
	var item string
	var limit int
	c := &cobra.Command{
		Use:     "ls [QUEUE]",
		Aliases: []string{"list"},
		Short:   "List effects",
		Long: `List effects by item. EFFECT is the identity that receivers get as
Idempotency-Key: the same in every attempt. In JSON the body is in base64.`,
		Example: `  croft work effects ls --state unknown,failed
  croft work effects ls --item 0198c0de00007000800000000000cafe --json`,
		Args:              cli.Takes("[QUEUE]"),
		ValidArgsFunction: a.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			var q work.EffectQuery
			for _, s := range states {
				q.States = append(q.States, work.EffectState(s))
			}
			if len(args) > 0 {
				q.Queue = args[0]
			}
			if limit < 0 {
				return cli.Invalid("--limit %d: it must not be negative", limit)
			}
			if item != "" {
				if err := checkIDs(item); err != nil {
					return err
				}
			}
			if err := q.Check(); err != nil {
				return err
			}
			return a.workEffectsLs(c.Context(), item, q, limit)
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&states, "state", nil,
		"only effects in this `state`: "+strings.Join(effectStates(), ", ")+"; may be given again")
	_ = c.RegisterFlagCompletionFunc("state",
		cobra.FixedCompletions(effectStates(), cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&item, "item", "", "only of the item with this `id`, or with an id that begins so")
	_ = c.RegisterFlagCompletionFunc("item", a.completeItems(work.Done))
	limitFlag(flags, &limit)
	return c
}

func (a *app) workEffectsLs(ctx context.Context, item string, q work.EffectQuery, limit int) error {
	return a.withLedger(ctx, func(ctx context.Context, l work.Ledger, now time.Time) error {
		if item != "" {
			ids, err := a.itemIDs(ctx, l, item)
			if err != nil {
				return err
			}
			q.Item = ids[0]
		}
		effects := listing[work.Effect]{
			table: a.effectTable(), none: "such effects",
			row:  func(e work.Effect) []cli.Cell { return rowOfEffect(e, now) },
			view: func(e work.Effect) any { return effectViewOf(e) },
		}
		return effects.show(a, limit, func(limit int) iter.Seq2[work.Effect, error] {
			q.Limit = limit
			return l.Effects(ctx, q)
		})
	})
}

func (a *app) effectTable() *cli.Table {
	return a.Table("EFFECT", "TO", "STATE", "TRIES", "WHEN", "BODY", "NOTE")
}

func rowOfEffect(e work.Effect, now time.Time) []cli.Cell {
	colours := map[work.EffectState]cli.Colour{work.Sent: cli.Green, work.Failed: cli.Red, work.Unknown: cli.Yellow}
	state, at, note := string(e.State), e.Settled, cli.Line(e.Error)
	switch {
	case e.State == work.Pending:
		at = e.Ready
	case e.State == work.Unknown && !e.Orphaned(now):
		state, at = "on its way", e.Ready
	}
	if e.Note != "" {
		note = cli.Word(e.Actor) + ": " + cli.Line(e.Note)
	}
	return []cli.Cell{
		cli.PlainCell(e.EffectID.String()),
		cli.PlainCell(cli.Word(e.To)),
		{Text: state, Colour: colours[e.State]},
		cli.PlainCell(fmt.Sprint(e.Attempts)),
		cli.PlainCell(cli.Ago(now, at)),
		cli.PlainCell(cli.Cut(cli.Line(strings.TrimSuffix(string(e.Body), "\n")), 40)),
		cli.PlainCell(firstLine(note)),
	}
}

func (a *app) workEffectsSettleCommand() *cobra.Command {
	var as, note string
	var delay time.Duration
	c := &cobra.Command{
		Use:   "settle EFFECT --as STATE --note WHY",
		Short: "Say what became of an effect, by hand",
		Long: `Record what became of an effect: sent (the receiver has it), failed (give it
up), or pending (deliver it, again). A sent effect stays sent. If a dispatcher
takes the effect meanwhile, nothing is changed.`,
		Example: `  croft work effects ls --state unknown
  croft work effects settle 0198c0de00007000800000000000cafe:0:charge --as sent --note "the bank has it"
  croft work effects settle 0198c0de00007000800000000000cafe:0:charge --as pending --note "the bank does not have it"`,
		Args:              cli.Takes("EFFECT"),
		ValidArgsFunction: a.completeEffects,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := work.ParseEffectID(args[0])
			if err != nil {
				return err
			}
			if !slices.Contains([]string{"sent", "failed", "pending"}, as) {
				return cli.Invalid("--as %q: it must be sent, failed or pending", as)
			}
			if delay != 0 && as != "pending" {
				return cli.Invalid("--delay: only a pending effect waits; leave it out")
			}
			return a.workSettle(c.Context(),
				work.Settlement{Effect: id, State: work.EffectState(as), Delay: delay, Actor: a.Actor(), Note: note})
		},
	}
	cli.NoteFlag(c, &note)
	c.Flags().StringVar(&as, "as", "", "what became of it: sent, failed or pending (required)")
	_ = c.MarkFlagRequired("as")
	_ = c.RegisterFlagCompletionFunc("as",
		cobra.FixedCompletions([]string{"sent", "failed", "pending"}, cobra.ShellCompDirectiveNoFileComp))
	delayFlag(c.Flags(), &delay, "delay", "the least time that a pending effect waits")
	return c
}

func (a *app) workSettle(ctx context.Context, s work.Settlement) error {
	if err := s.Check(); err != nil {
		return err
	}
	return a.withLedger(ctx, func(ctx context.Context, l work.Ledger, now time.Time) error {
		found := false
		for e, err := range l.Effects(ctx, work.EffectQuery{Item: s.Effect.Item}) {
			if err != nil {
				return store.Unknown(err)
			}
			if e.EffectID == s.Effect {
				s.Attempt, found = e.Attempts, true
			}
		}
		if !found {
			return &work.NotFoundError{What: "effect " + s.Effect.String()}
		}
		answer := l.Settle(ctx, []work.Settlement{s})[0]
		switch {
		case answer.Err != nil:
			return answer.Err
		case a.JSON:
			a.Print(struct {
				Effect   string           `json:"effect"`
				State    work.EffectState `json:"state"`
				Attempts int              `json:"attempts"`
				Ready    cli.When         `json:"ready"`
				Repeated bool             `json:"repeated"`
			}{
				s.Effect.String(), answer.Effect.State, answer.Effect.Attempts, cli.When(answer.Effect.Ready),
				answer.Repeated,
			})
		default:
			a.Confirm("%s: %s", s.Effect, answer.Effect.State)
		}
		return nil
	})
}
