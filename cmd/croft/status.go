package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/cmd/croft/internal/workcmd"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// statusOptions are the flags of status.
type statusOptions struct {
	prefix     string
	stallAfter time.Duration
	limit      int
}

// mostShown bounds --limit.
const mostShown = 1000

func (a *app) statusCommand() *cobra.Command {
	o := statusOptions{stallAfter: glance.StallAfter, limit: 5}
	c := &cobra.Command{
		Use:     "status [PREFIX]",
		GroupID: cli.GroupLook,
		Short:   "Show on one screen what is held, lapsing, stalled, refused and dead",
		Long: `Show the store on one screen: how many of each there are, and the most urgent.

  held     keys that an owner has, and running items of the ledger
  lapsing  keys with less than a third of their TTL left; a lease that croft
           renews has more. Also keys and items whose owner was not heard from
           in time, if nobody has taken them since
  stalled  held keys whose owner has reported progress, but not for
           --stall-after; running items without progress for so long
  refused  what guards, the store and the ledger refused in the last day, or
           let in by --observe or --when-unsure
  dead     items whose attempts are used up, effects that were given up, and
           effects whose dispatcher did not settle them in time
  paused   queues from which nobody may claim; croft names none if there is none
  store    the verdict of "croft doctor", with what is not in order

With PREFIX croft looks only at keys that begin with it, and not at the ledger.
The ledger is that of "croft work", if the store keeps one.

Croft changes no key and no item. It lists the keys once, however many there
are. Keys and items may be in more than one group.

The exit code is 0 if the store answers, whatever it shows, and 14 if not. In
JSON, well is false if something is lapsing, stalled or dead, or if the store is
not fit: croft status --json | jq -e .well`,
		Example: `  croft status
  croft status orders/ --limit 20
  croft status --json | jq -e .well`,
		Args:              cli.Takes("[PREFIX]"),
		ValidArgsFunction: a.CompleteKey,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.prefix = args[0]
			}
			if o.limit < 1 || o.limit > mostShown {
				return cli.Invalid("--limit %d: it must be between 1 and %d", o.limit, mostShown)
			}
			return a.status(c.Context(), o)
		},
	}
	c.Flags().Var(&cli.Duration{
		Value: &o.stallAfter, Least: time.Second, Most: tenure.MaxPeriod, Examples: "5m or 1h",
	}, "stall-after", "how long work may be without progress")
	c.Flags().IntVar(&o.limit, "limit", o.limit, "how many of each to show at most")
	return c
}

func (a *app) status(ctx context.Context, o statusOptions) error {
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	st, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	name, _, err := a.StoreName()
	if err != nil {
		return err
	}
	var ledger work.Ledger
	if o.prefix == "" {
		if ledger, err = a.LedgerOf(ctx, name); err != nil {
			return err
		}
	}
	if ledger != nil {
		defer ledger.Close()
	}
	s, err := a.statusOf(ctx, st, ledger, o)
	if err != nil {
		return err
	}
	s.name = store.Redact(name)
	if text := s.damage.text(a); text != "" {
		fmt.Fprintln(a.Stderr, "croft: "+text)
	}
	for i := range s.findings {
		f := &s.findings[i]
		f.Seen, f.Advice = a.Redact(f.Seen), a.Redact(f.Advice)
	}
	if a.JSON {
		a.Print(s.view())
		return nil
	}
	a.printStatus(s, o)
	return nil
}

// status is what one look has found.
type status struct {
	name                   string // of the store
	now                    time.Time
	held, lapsing, stalled glance.Urgent[tenure.Record]
	expired                int // of those lapsing
	refused                []refusals.Refusal
	limit                  int
	work                   *workcmd.Glance // zero if there is no ledger
	findings               []store.Finding
	damage                 damage // of the records that are missing
}

// statusOf looks at the store and the ledger. It only reads. The number of its
// calls does not depend on the number of keys.
func (a *app) statusOf(ctx context.Context, st store.Store, ledger work.Ledger, o statusOptions) (*status, error) {
	now, err := a.Now(ctx, st)
	if err != nil {
		return nil, err
	}
	s := &status{now: now, limit: o.limit, work: &workcmd.Glance{}}
	s.held = glance.Urgent[tenure.Record]{Most: o.limit, Order: func(x, y tenure.Record) int {
		return cmp.Or(cmp.Compare(glance.PartLeft(x, now), glance.PartLeft(y, now)), strings.Compare(x.Key, y.Key))
	}}
	s.lapsing = s.held
	// Expired keys come first, and of these the latest.
	s.lapsing.Order = func(x, y tenure.Record) int {
		px, py := glance.PartLeft(x, now), glance.PartLeft(y, now)
		switch {
		case px <= 0 && py <= 0:
			return cmp.Or(y.Deadline.Compare(x.Deadline), strings.Compare(x.Key, y.Key))
		default:
			return cmp.Or(cmp.Compare(px, py), strings.Compare(x.Key, y.Key))
		}
	}
	s.stalled = s.held
	s.stalled.Order = func(x, y tenure.Record) int {
		return cmp.Or(x.ProgressAt.Compare(y.ProgressAt), strings.Compare(x.Key, y.Key))
	}
	count, stop := a.CountOnTerminal("keys")
	defer stop()
	for rec, err := range cli.ListRecords(ctx, st, o.prefix) {
		if err != nil {
			if err := s.damage.rest(err); err != nil {
				return nil, err
			}
			continue
		}
		count()
		rec.History = nil // croft keeps none of it
		s.add(rec, o.stallAfter)
	}
	stop()
	all, err := refusals.Read(ctx, st, o.prefix)
	if err := s.damage.rest(err); err != nil {
		return nil, err
	}
	s.refused = only(all, func(r refusals.Refusal) bool {
		return now.Sub(r.At) < recentRefusals && !cli.Hidden(r.Key, o.prefix)
	})
	slices.Reverse(s.refused) // the newest first
	if ledger != nil {
		if s.work, err = workcmd.GlanceAt(ctx, ledger, o.stallAfter, recentRefusals, o.limit); err != nil {
			return nil, err
		}
	}
	s.findings, err = examine(ctx, st)
	return s, err
}

// recentRefusals is how old the refusals are at most that status shows.
const recentRefusals = 24 * time.Hour

// add sorts a record into the groups.
func (s *status) add(rec tenure.Record, stallAfter time.Duration) {
	switch state, _ := cli.StateOf(rec, s.now); state {
	case "expired":
		s.expired++
		s.lapsing.Add(rec)
	case "held":
		s.held.Add(rec)
		if glance.Lapsing(rec, s.now) {
			s.lapsing.Add(rec)
		}
		if glance.Stalled(rec, s.now, stallAfter) {
			s.stalled.Add(rec)
		}
	}
}

// well reports whether nothing needs a person.
func (s *status) well() bool {
	w := s.work
	return s.lapsing.Count+s.stalled.Count+len(s.damage.errs) == 0 && verdictOf(s.findings) != store.Bad &&
		w.Lapsed.Count+w.Stalled.Count+w.Dead.Count+w.Given.Count+w.Stuck.Count == 0
}

// statusGroup is a group in JSON. Its count is of all, its lists have the most
// urgent. AtLeast is set if there are more than croft has counted.
type statusGroup struct {
	Count   int   `json:"count"`
	AtLeast bool  `json:"at_least,omitempty"`
	Keys    []any `json:"keys,omitzero"`
	Items   []any `json:"items,omitzero"`
	Effects []any `json:"effects,omitzero"`
	Queues  []any `json:"queues,omitzero"`
	// Refusals are those of leases and guards, and Writes those of the ledger.
	Refusals []any `json:"refusals,omitzero"`
	Writes   []any `json:"work_refusals,omitzero"`
}

// statusView is a status in JSON.
type statusView struct {
	Store    string          `json:"store"`
	Time     cli.When        `json:"time"`
	Well     bool            `json:"well"`
	Verdict  store.Level     `json:"verdict"`
	Findings []store.Finding `json:"findings"` // those that are not in order
	Held     statusGroup     `json:"held"`
	Running  int             `json:"running"` // items
	Lapsing  statusGroup     `json:"lapsing"`
	Stalled  statusGroup     `json:"stalled"`
	Refused  statusGroup     `json:"refused"`
	Dead     statusGroup     `json:"dead"`
	Paused   statusGroup     `json:"paused"`
}

func (s *status) view() statusView {
	w := s.work
	keys := func(all []tenure.Record) []any {
		return viewsOf(all, func(rec tenure.Record) any { return cli.ViewOf(rec, s.now) })
	}
	rows := func(all ...workcmd.GlanceRow) []any {
		return viewsOf(all, func(r workcmd.GlanceRow) any { return r.View })
	}
	return statusView{
		Store: s.name, Time: cli.When(s.now), Well: s.well(), Verdict: verdictOf(s.findings), Findings: s.faults(),
		Held: statusGroup{Count: s.held.Count, Keys: keys(s.held.First())}, Running: w.Running,
		Lapsing: statusGroup{
			Count: s.lapsing.Count + w.Lapsed.Count, AtLeast: w.MoreRunning,
			Keys: keys(s.lapsing.First()), Items: rows(w.Lapsed.First()...),
		},
		Stalled: statusGroup{
			Count: s.stalled.Count + w.Stalled.Count, AtLeast: w.MoreRunning,
			Keys: keys(s.stalled.First()), Items: rows(w.Stalled.First()...),
		},
		Refused: statusGroup{
			Count: refusals.SumUp(s.refused).Count + w.Refused.Count, AtLeast: w.MoreRefused,
			Refusals: viewsOf(s.newest(), func(r refusals.Refusal) any { return refusalViewOf(r) }),
			Writes:   rows(w.Refused.First()...),
		},
		Dead: statusGroup{
			Count: w.Dead.Count + w.Given.Count + w.Stuck.Count, AtLeast: w.MoreStuck,
			Items: rows(w.Dead.First()...), Effects: rows(append(w.Stuck.First(), w.Given.First()...)...),
		},
		Paused: statusGroup{Count: w.Paused.Count, Queues: rows(w.Paused.First()...)},
	}
}

// viewsOf returns the views of values, as a list that is never null.
func viewsOf[T any](all []T, view func(T) any) []any {
	views := make([]any, len(all))
	for i, v := range all {
		views[i] = view(v)
	}
	return views
}

// newest are the newest refusals.
func (s *status) newest() []refusals.Refusal { return s.refused[:min(len(s.refused), s.limit)] }

// faults are the findings that are not in order, the bad ones first.
func (s *status) faults() []store.Finding {
	faults := []store.Finding{}
	for _, level := range []store.Level{store.Bad, store.Warn} {
		for _, f := range s.findings {
			if f.Level == level {
				faults = append(faults, f)
			}
		}
	}
	return faults
}
